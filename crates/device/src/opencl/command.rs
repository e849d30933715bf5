//! Commands that move no bytes between host and device: launches, markers, barriers, migrations.

use penstock_wire::status::Status;

use super::api::{self, function};
use super::event::Event;
use super::kernel::Kernel;
use super::memory::Mem;
use super::queue::{Queue, Want};
use super::watch::Inside;

const INVALID_WORK_DIMENSION: Status = Status(penstock_cl_sys::CL_INVALID_WORK_DIMENSION);
const INVALID_GLOBAL_OFFSET: Status = Status(penstock_cl_sys::CL_INVALID_GLOBAL_OFFSET);
const INVALID_GLOBAL_WORK_SIZE: Status = Status(penstock_cl_sys::CL_INVALID_GLOBAL_WORK_SIZE);
const INVALID_WORK_GROUP_SIZE: Status = Status(penstock_cl_sys::CL_INVALID_WORK_GROUP_SIZE);

/// The work-items of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    dims: u32,
    offset: [usize; 3],
    global: [usize; 3],
    local: Option<[usize; 3]>,
}

impl Range {
    /// Checks a range of `dims` dimensions. Without `local` the driver chooses the work-groups.
    ///
    /// # Errors
    /// `CL_INVALID_WORK_DIMENSION`, `CL_INVALID_GLOBAL_OFFSET`, `CL_INVALID_GLOBAL_WORK_SIZE`,
    /// `CL_INVALID_WORK_GROUP_SIZE`. The launch finds errors that depend on the device.
    pub fn checked(
        dims: u32,
        offset: [u64; 3],
        global: [u64; 3],
        local: Option<[u64; 3]>,
    ) -> Result<Self, Status> {
        // "CL_INVALID_WORK_DIMENSION if work_dim is not a valid value (i.e. a value between 1 and
        // 3)."
        if !(1..=3).contains(&dims) {
            return Err(INVALID_WORK_DIMENSION);
        }
        let used = dims as usize;
        for (start, length) in offset.into_iter().zip(global).take(used) {
            // "CL_INVALID_GLOBAL_OFFSET if the value specified in global_work_size + the
            // corresponding values in global_work_offset for any dimensions is greater than the
            // maximum value representable by size t".
            let end = start.checked_add(length).ok_or(INVALID_GLOBAL_OFFSET)?;
            usize::try_from(end).map_err(|_| INVALID_GLOBAL_OFFSET)?;
        }
        // No kernel with more work-items ever ends, and drivers count them in one word (PoCL 3.1
        // aborts).
        let items = global.into_iter().take(used).try_fold(1_u64, u64::checked_mul);
        if items.is_none_or(|items| items > isize::MAX as u64) {
            return Err(INVALID_GLOBAL_WORK_SIZE);
        }
        if local.is_some_and(|local| local.into_iter().take(used).any(|size| size == 0)) {
            return Err(INVALID_WORK_GROUP_SIZE);
        }
        let narrow = |triple: [u64; 3], unused: u64| -> Result<[usize; 3], Status> {
            let mut sizes = [0; 3];
            for (index, (size, value)) in sizes.iter_mut().zip(triple).enumerate() {
                *size = api::size(if index < used { value } else { unused })?;
            }
            Ok(sizes)
        };
        let local = local.map(|local| narrow(local, 1)).transpose()?;
        Ok(Self { dims, offset: narrow(offset, 0)?, global: narrow(global, 1)?, local })
    }

    pub(super) fn dims(&self) -> u32 {
        self.dims
    }

    pub(super) fn offset(&self) -> &[usize; 3] {
        &self.offset
    }

    pub(super) fn global(&self) -> &[usize; 3] {
        &self.global
    }
}

impl Queue {
    /// `clEnqueueNDRangeKernel`, with the current arguments.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_KERNEL_ARGS` if an argument's memory is gone.
    pub fn launch(
        &self,
        kernel: &Kernel,
        range: &Range,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let launch = function!(clEnqueueNDRangeKernel)?;
        let _inside = Inside::enter();
        let mut args = kernel.args();
        args.check_local(self.device())?;
        args.hold()?;
        let local = range.local.as_ref().map_or(std::ptr::null(), |local| local.as_ptr());
        let launched = self.enqueue(waits, want, |length, list, event| {
            // SAFETY: queue, kernel and the memory among its arguments live; the sizes have three
            // entries, of which the driver reads `dims`; `enqueue` made list and event.
            unsafe {
                launch(
                    self.raw(),
                    kernel.raw(),
                    range.dims,
                    range.offset.as_ptr(),
                    range.global.as_ptr(),
                    local,
                    length,
                    list,
                    event,
                )
            }
        });
        args.let_go();
        launched
    }

    /// `clEnqueueMarkerWithWaitList`. Without a wait list it waits for all earlier commands.
    ///
    /// # Errors
    /// The driver's error.
    pub fn marker(&self, waits: &[&Event], want: Want) -> Result<Option<Event>, Status> {
        marker(self, waits, want)
    }

    /// `clEnqueueBarrierWithWaitList`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn barrier(&self, waits: &[&Event], want: Want) -> Result<Option<Event>, Status> {
        let barrier = function!(clEnqueueBarrierWithWaitList)?;
        self.enqueue(waits, want, |length, list, event| {
            // SAFETY: the queue lives; `enqueue` made list and event.
            unsafe { barrier(self.raw(), length, list, event) }
        })
    }

    /// `clEnqueueMigrateMemObjects`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn migrate(
        &self,
        mems: &[&Mem],
        flags: u64,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let migrate = function!(clEnqueueMigrateMemObjects)?;
        self.expect_same_context(mems)?;
        if self.context().shares_host_memory() {
            return self.stay(waits, want);
        }
        let handles: Vec<_> = mems.iter().map(|mem| mem.raw()).collect();
        let number = api::count(handles.len())?;
        self.enqueue(waits, want, |length, list, event| {
            // SAFETY: the queue lives; the list has `number` entries; `enqueue` made list and
            // event.
            unsafe { migrate(self.raw(), number, handles.as_ptr(), flags, length, list, event) }
        })
    }

    /// Migrates nothing, because the devices work on this process's memory. PoCL 3.1 would return
    /// an event without a reference for the caller.
    fn stay(&self, waits: &[&Event], want: Want) -> Result<Option<Event>, Status> {
        if waits.is_empty() && self.is_out_of_order() && !self.profiles() {
            // A marker without a wait list would wait for all earlier commands.
            let ended = Event::user(self.context())?;
            ended.complete(Status::OK)?;
            return Ok((want == Want::Event).then_some(ended));
        }
        marker(self, waits, want)
    }

    /// "CL_INVALID_CONTEXT if the context associated with command_queue and buffer are not the
    /// same": not all drivers check that.
    pub(super) fn expect_same_context(&self, mems: &[&Mem]) -> Result<(), Status> {
        let same = mems.iter().all(|mem| mem.context().id() == self.context().id());
        if same { Ok(()) } else { Err(Status::INVALID_CONTEXT) }
    }
}

pub(super) fn marker(queue: &Queue, waits: &[&Event], want: Want) -> Result<Option<Event>, Status> {
    let marker = function!(clEnqueueMarkerWithWaitList)?;
    queue.enqueue(waits, want, |length, list, event| {
        // SAFETY: the queue lives; `enqueue` made list and event.
        unsafe { marker(queue.raw(), length, list, event) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked() {
        let range = Range::checked(2, [1, 2, 99], [4, 8, 99], Some([2, 2, 0])).unwrap();
        assert_eq!(
            (range.offset, range.global, range.local),
            ([1, 2, 0], [4, 8, 1], Some([2, 2, 1]))
        );
        assert_eq!(Range::checked(0, [0; 3], [1; 3], None), Err(INVALID_WORK_DIMENSION));
        assert_eq!(Range::checked(4, [0; 3], [1; 3], None), Err(INVALID_WORK_DIMENSION));
        assert_eq!(Range::checked(1, [u64::MAX, 0, 0], [1; 3], None), Err(INVALID_GLOBAL_OFFSET));
        assert_eq!(Range::checked(3, [0; 3], [1 << 32; 3], None), Err(INVALID_GLOBAL_WORK_SIZE));
        assert_eq!(
            Range::checked(1, [0; 3], [1; 3], Some([0, 1, 1])),
            Err(INVALID_WORK_GROUP_SIZE)
        );
    }
}
