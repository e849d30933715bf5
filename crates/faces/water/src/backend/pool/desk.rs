//! The desk, where other threads leave messages for the scheduler, in particular the ends of
//! commands.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use penstock_client::{Event, Heap, Pool, Program};
use penstock_process::Lock;
use penstock_wire::Status;

use super::kernel::{PoolKernel, ProgramKey};
use crate::backend::{Ended, Failure};
use crate::clock::Clock;
use crate::command::{CommandId, ObjectId, Times};
use crate::doorbell::Doorbell;
use crate::error::code;
use crate::heap::HeapPlan;

/// A message of another thread to the scheduler.
pub(super) enum BackendMessage {
    /// An operation has ended.
    Ended(Ended),
    /// An operation has been sent, and somebody waits for that.
    Sent(CommandId),
    Built {
        id: CommandId,
        object: ObjectId,
        key: Box<ProgramKey>,
        made: Result<(Arc<Program>, PoolKernel), Failure>,
    },
    /// A heap was created, or its creation failed.
    Heap { id: CommandId, plan: Box<HeapPlan>, made: Result<Arc<Heap>, Failure> },
}

impl std::fmt::Debug for BackendMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ended(ended) => ended.fmt(f),
            Self::Sent(id) => f.debug_tuple("Sent").field(id).finish(),
            Self::Built { id, .. } => f.debug_tuple("Built").field(id).finish(),
            Self::Heap { id, .. } => f.debug_tuple("Heap").field(id).finish(),
        }
    }
}

/// The scheduler's desk. All clones reach the same scheduler.
#[derive(Clone, Debug)]
pub(super) struct Desk {
    post: Sender<BackendMessage>,
    bell: Arc<Lock<Doorbell>>,
    clock: Arc<dyn Clock>,
    pool: Arc<Pool>,
}

impl Desk {
    pub(super) fn new(
        post: Sender<BackendMessage>,
        clock: Arc<dyn Clock>,
        pool: Arc<Pool>,
    ) -> Self {
        Self { post, bell: Arc::default(), clock, pool }
    }

    pub(super) fn wake_with(&self, wake: Doorbell) {
        *self.bell.lock() = wake;
    }

    pub(super) fn tell(&self, news: BackendMessage) {
        // Sending fails only when the run is over and nobody listens.
        _ = self.post.send(news);
        self.bell.lock().ring();
    }

    /// Reports an operation that failed and has no event.
    pub(super) fn failed(&self, id: CommandId, failure: Failure) {
        self.tell(BackendMessage::Ended(self.end_now(id, Err(failure))));
    }

    /// Reports an operation that succeeded and has no event.
    pub(super) fn done(&self, id: CommandId) {
        self.tell(BackendMessage::Ended(self.end_now(id, Ok(()))));
    }

    pub(super) fn end_now(&self, id: CommandId, outcome: Result<(), Failure>) -> Ended {
        Ended { operation: id, outcome, times: Times::default() }
    }

    /// Reports the end of a command of `node`. Its start is derived from the duration that the
    /// device's clock measured.
    pub(super) fn ended(
        &self,
        id: CommandId,
        node: usize,
        what: &str,
        status: Status,
        event: &Event,
    ) {
        let (ended, times) = (self.clock.now(), event.times());
        let started = ended.saturating_sub(times.ended.saturating_sub(times.started));
        let outcome =
            if status.is_error() { Err(self.failure(node, what, status)) } else { Ok(()) };
        self.tell(BackendMessage::Ended(Ended {
            operation: id,
            outcome,
            times: Times { received: 0, started, ended },
        }));
    }

    /// Explains why a command of `node` failed with `status`.
    fn failure(&self, node: usize, what: &str, status: Status) -> Failure {
        // A driver's "device not available" has the same number as the loss of a node.
        let lost = (status == Status::NODE_LOST).then(|| self.lost(node)).flatten();
        match lost {
            Some(reason) => Failure {
                code: code::NODE_LOST,
                message: format!("cannot {what}: {reason}"),
                log: String::new(),
            },
            None => Failure {
                code: status.0,
                message: format!("cannot {what}: {}", status),
                log: String::new(),
            },
        }
    }

    /// Explains why a command could not be sent to `node`.
    pub(super) fn refusal(
        &self,
        node: usize,
        what: &str,
        error: &penstock_client::Error,
    ) -> Failure {
        let status = error.status();
        if status == Status::NODE_LOST {
            let reason = self.lost(node).unwrap_or_else(|| error.to_string());
            return Failure {
                code: code::NODE_LOST,
                message: format!("cannot {what}: {reason}"),
                log: String::new(),
            };
        }
        Failure { code: status.0, message: format!("cannot {what}: {error}"), log: String::new() }
    }

    /// Returns why a node is lost: `node`, or another one that a command there may have needed.
    fn lost(&self, node: usize) -> Option<String> {
        let (own, others): (Vec<_>, Vec<_>) =
            self.pool.nodes().iter().partition(|it| it.index() == node);
        let lost = own.into_iter().chain(others).find(|node| node.session().is_lost())?;
        // A lost session answers every call with the reason, and sends nothing.
        let why = lost
            .session()
            .flush()
            .err()
            .map_or_else(|| format!("node {} is lost", lost.host()), |error| error.to_string());
        Some(format!("{why} ({})", lost.address()))
    }
}
