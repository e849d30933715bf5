//! Launches of kernels.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_coherence::HostShape;
use penstock_trial::{Defect, planted};
use penstock_wire::calls::to_worker;
use penstock_wire::{IndexSpace, Status};

use crate::command::{Issue, Later, Spec};
use crate::error::Result;
use crate::event::Event;
use crate::kernel::{Args, Kernel, LateLaunch};
use crate::queue::{Enqueued, Queue, Want};
use crate::session::Session;
use crate::uses::Use;

impl Queue {
    /// Starts a kernel with its present arguments.
    ///
    /// # Errors
    /// If the node is lost.
    pub fn launch(
        self: &Arc<Self>,
        kernel: &Arc<Kernel>,
        space: IndexSpace,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let mut args = kernel.args.lock();
        let heaps = args.heaps();
        for heap in &heaps {
            heap.check_queue(self)?;
        }
        // The event tells when the launch no longer uses the heap.
        let want = if heaps.is_empty() { want } else { Want::Event };
        // Within one place the driver knows which memory a kernel uses.
        let uses = if self.context().is_single() { Vec::new() } else { args.uses() };
        let uses: Vec<_> = uses.iter().map(|(memory, access)| Use::all(memory, *access)).collect();
        let spec = Spec { writes_host: self.printed_by(kernel), ..Spec::new(&uses, waits, want) };
        // Both closures borrow the arguments; only one of them runs.
        let args = std::cell::RefCell::new(&mut *args);
        let now = |session: &Session, issue: &Issue| {
            self.send_launch(kernel, space, session, issue, (&mut args.borrow_mut(), false))
        };
        let later = || {
            let args = args.borrow();
            self.launch_later(LateLaunch::new(kernel, &args), space, args.for_later(self.place()))
        };
        let enqueued = self.command(spec, now, later);
        let enqueued = enqueued.inspect_err(|_| args.borrow_mut().resend(Some(self.place())))?;
        if let Some(event) = &enqueued {
            // A launch whose wait list has failed already is never sent. Kernels on other devices
            // would wait for it in vain.
            let has_failed = event.known_status().is_some_and(Status::is_error);
            for heap in &heaps {
                heap.note(event);
                if has_failed {
                    heap.abort("a launch with the heap was not started: its wait list failed")?;
                }
            }
        }
        Ok(enqueued)
    }

    /// Has a message about a crash of the worker name this kernel.
    pub fn remember(&self, kernel: &Kernel) {
        self.session().notices.launched(kernel.description());
    }

    /// Returns the host memory that stands for what a kernel prints. The printed text arrives with
    /// the end of the launch. To the state machine it is host memory that the launch writes, so
    /// that no other node tells an end before the text has arrived. Each launch has its own byte,
    /// at an address that no program has.
    fn printed_by(&self, kernel: &Kernel) -> Option<HostShape> {
        /// Addresses of programs never have the highest bit set.
        const PRINTED: u64 = 1 << 63;
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // The text of one node arrives in the order of its ends.
        let is_far = kernel.may_print() && self.context().has_several_nodes();
        is_far.then(|| HostShape {
            start: PRINTED | NEXT.fetch_add(1, Ordering::Relaxed),
            row: 1,
            rows: 1,
            row_pitch: 1,
            slices: 1,
            slice_pitch: 1,
        })
    }

    fn send_launch(
        &self,
        kernel: &Kernel,
        space: IndexSpace,
        session: &Session,
        issue: &Issue,
        (args, is_late): (&mut Args, bool),
    ) -> Result<()> {
        let call = to_worker::LaunchKernel {
            queue: self.id(),
            kernel: kernel.id_at(self.place()),
            event: issue.event,
            space: space.into(),
        };
        let send = |args: &mut Args| {
            args.restore_exec_info(self.place(), call.kernel, self.session());
            session.send(&call, &issue.waits, args.changed(self.place(), self.device())?)
        };
        if !is_late {
            return kernel.send_args(|| send(args));
        }
        kernel.on_wire(|| {
            send(args)?;
            if !planted(Defect::LateArgs) {
                args.override_at(self.place());
            }
            Ok(())
        })
    }

    /// Returns the function that sends a launch with all arguments as they were when it was
    /// enqueued.
    fn launch_later(
        self: &Arc<Self>,
        late: LateLaunch,
        space: IndexSpace,
        mut args: Args,
    ) -> Later {
        let queue = self.clone();
        Box::new(move |session, issue| {
            queue.send_launch(late.kernel(), space, session, issue, (&mut args, true))
        })
    }
}
