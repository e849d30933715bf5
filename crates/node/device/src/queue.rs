//! Queues, and the commands that move no bytes. Transfers are in `command` and `image_command`.

use std::sync::{Arc, OnceLock};

use penstock_cl_sys::{CL_QUEUE_ON_DEVICE, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE};
use penstock_wire::IndexSpace;
use penstock_wire::status::Status;

use crate::command::{Command, Source};
use crate::driver::{Context, Device, Failed, Kernel, Mem, Queue, QueueDriver, QueueParts, Want};
use crate::event::{Event, Reading};
use crate::region;
use crate::staging::Staged;

impl Queue {
    /// `clCreateCommandQueueWithProperties`; `size` is `CL_QUEUE_SIZE`, or 0 for none.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_DEVICE` if the context does not have the device.
    pub fn new(
        context: &Context,
        device: &Device,
        properties: u64,
        size: u32,
    ) -> Result<Self, Status> {
        if !context.devices().contains(device) {
            return Err(Status::INVALID_DEVICE);
        }
        Ok(Self::over(
            context.0.driver.queue(device, properties, size)?,
            context,
            device,
            properties,
        ))
    }

    pub(crate) fn over(
        driver: Box<dyn QueueDriver>,
        context: &Context,
        device: &Device,
        properties: u64,
    ) -> Self {
        let (context, device) = (context.clone(), device.clone());
        Self(Arc::new(QueueParts { driver, context, device, properties, failed: OnceLock::new() }))
    }

    /// Names who hears of commands that the queue has accepted and that fail later: calls of
    /// libraries, and commands that CUDA's driver refuses when their turn comes. The failure is
    /// told before the end of the command, and also if the command has an event. OpenCL's drivers
    /// tell a failure of other commands by the event alone. Only the first call has an effect.
    pub fn on_failure(&self, failed: Failed) {
        if self.0.failed.set(failed.clone()).is_ok() {
            self.0.driver.on_failure(&failed);
        }
    }

    pub fn context(&self) -> &Context {
        &self.0.context
    }

    pub fn device(&self) -> &Device {
        &self.0.device
    }

    pub fn is_out_of_order(&self) -> bool {
        self.0.properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0
    }

    /// Whether it is a queue on the device, which takes no commands from the host.
    pub fn is_on_device(&self) -> bool {
        self.0.properties & CL_QUEUE_ON_DEVICE != 0
    }

    /// `clFlush`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn flush(&self) -> Result<(), Status> {
        self.0.driver.flush()
    }

    /// `clFinish`: blocks until all commands of the queue have ended.
    ///
    /// # Errors
    /// The driver's error.
    pub fn finish(&self) -> Result<(), Status> {
        self.0.driver.finish()
    }

    /// Frees staged bytes of commands that have ended. Commands do so now and then; a caller that
    /// reaches `limits::STAGED_BYTES_MAX` calls this for each queue.
    pub fn reclaim(&self) {
        self.0.driver.reclaim();
    }

    /// Enqueues a command whose ranges have been checked.
    pub(crate) fn enqueue(
        &self,
        command: Command<'_>,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        self.expect_own(waits)?;
        match self.late_start(waits) {
            None => self.0.driver.enqueue(command, waits, want),
            Some(late) => self.0.driver.enqueue(command, &[waits, &[&late]].concat(), want),
        }
    }

    /// Enqueues a read of `bytes` bytes. The caller has checked the bounds of the source.
    pub(crate) fn enqueue_read(
        &self,
        source: &Source<'_>,
        bytes: u64,
        waits: &[&Event],
    ) -> Result<Reading, Status> {
        self.expect_own(waits)?;
        let into = Staged::new(region::narrow(bytes)?)?;
        match self.late_start(waits) {
            None => self.0.driver.read(source, into, waits),
            Some(late) => self.0.driver.read(source, into, &[waits, &[&late]].concat()),
        }
    }

    /// "CL_INVALID_CONTEXT if the context associated with command_queue and events in
    /// event_wait_list are not the same."
    fn expect_own(&self, waits: &[&Event]) -> Result<(), Status> {
        let own = waits.iter().all(|event| event.context_id() == self.context().id());
        if own { Ok(()) } else { Err(Status::INVALID_CONTEXT) }
    }

    /// "CL_INVALID_CONTEXT if the context associated with command_queue and buffer are not the
    /// same": not all drivers check that.
    pub(crate) fn expect_same_context(&self, mems: &[&Mem]) -> Result<(), Status> {
        let same = mems.iter().all(|mem| mem.context().id() == self.context().id());
        if same { Ok(()) } else { Err(Status::INVALID_CONTEXT) }
    }

    /// In builds that inject delays: may make an event that holds the command back a little.
    fn late_start(&self, waits: &[&Event]) -> Option<Event> {
        if !penstock_trial::is_put_off(penstock_trial::Place::DeviceStarts) {
            return None;
        }
        // In an out-of-order queue a wait list would change the meaning of a marker.
        if self.device().must_not_wait() || (waits.is_empty() && self.is_out_of_order()) {
            return None;
        }
        let event = Event::user(self.context()).ok()?;
        let late = event.clone();
        let started = penstock_process::start("late start", move || {
            penstock_trial::delay(penstock_trial::Place::DeviceStarts);
            // If the context is gone, the event holds nothing back.
            _ = late.complete(Status::OK);
        });
        started.is_ok().then_some(event)
    }

    /// `clEnqueueNDRangeKernel`, with the current arguments.
    ///
    /// # Errors
    /// Those of [`IndexSpace::checked`]; the driver's error; `CL_INVALID_KERNEL_ARGS` if an
    /// argument's memory is gone.
    pub fn launch(
        &self,
        kernel: &Kernel,
        space: &IndexSpace,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let space = space.checked()?;
        self.enqueue(Command::Launch { kernel, space: &space }, waits, want)
    }

    /// `clEnqueueMarkerWithWaitList`. Without a wait list it waits for all earlier commands.
    ///
    /// # Errors
    /// The driver's error.
    pub fn marker(&self, waits: &[&Event], want: Want) -> Result<Option<Event>, Status> {
        if !waits.is_empty() {
            return self.pass(waits, want);
        }
        self.enqueue(Command::Marker, waits, want)
    }

    /// `clEnqueueBarrierWithWaitList`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn barrier(&self, waits: &[&Event], want: Want) -> Result<Option<Event>, Status> {
        self.enqueue(Command::Barrier, waits, want)
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
        self.expect_same_context(mems)?;
        if self.context().shares_host_memory() {
            // Nothing moves, because the devices work on this process's memory. PoCL 3.1 would
            // return an event without a reference for the caller.
            return self.pass(waits, want);
        }
        self.enqueue(Command::Migrate { mems, flags }, waits, want)
    }

    /// Does nothing, in its turn. In an out-of-order queue it waits for `waits` and for barriers
    /// only.
    fn pass(&self, waits: &[&Event], want: Want) -> Result<Option<Event>, Status> {
        if !self.is_out_of_order() {
            return self.enqueue(Command::Marker, waits, want);
        }
        if self.device().0.driver.runs_tasks() {
            // In PoCL 3.1 a marker waits for all earlier commands of the queue, even if it has a
            // wait list, and fails with them.
            return self.enqueue(Command::Task(Box::new(|| ())), waits, want);
        }
        if !waits.is_empty() {
            return self.enqueue(Command::Marker, waits, want);
        }
        // "If event_wait_list is NULL, then this particular command waits until all previous
        // enqueued commands to command_queue have completed."
        let ended = Event::user(self.context())?;
        ended.complete(Status::OK)?;
        self.enqueue(Command::Marker, &[&ended], want)
    }
}
