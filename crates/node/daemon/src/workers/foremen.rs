//! The foremen that workers ask for.

use std::sync::Arc;

use super::{State, Workers};
use crate::builder::Request;
use crate::groups::Group;
use crate::message::Control;

/// Most foremen of a worker, one after the other. It needs another one only if the last one was
/// ended, as by an administrator or for lack of memory. This bounds the work that a hostile worker
/// makes.
const FOREMEN_MAX: u32 = 64;

/// A foreman that a worker has asked for.
#[derive(Clone, Debug)]
pub(crate) struct NeedsForeman {
    pub(crate) worker: u32,
    /// Chosen by the worker.
    pub(crate) question: u64,
}

impl Workers {
    /// Returns whether a worker has a session.
    pub(crate) fn is_serving(&self, worker: u32) -> bool {
        self.table.get(&worker).is_some_and(|it| matches!(it.state, State::Serving(_)))
    }

    /// Returns what the foreman of a worker must be told, or the reason why the worker gets none,
    /// and the connection to the worker. Returns `None` if the worker has ended.
    pub(crate) fn foreman_of(
        &mut self,
        worker: u32,
    ) -> Option<(Arc<Control>, Result<Request, String>)> {
        let names = || self.devices.iter().map(|device| device.name.clone()).collect();
        let copied = self.is_pocl.then(names);
        let found = self.table.get_mut(&worker)?;
        if !matches!(found.state, State::Serving(_)) {
            return None;
        }
        found.foremen += 1;
        if found.foremen > FOREMEN_MAX {
            let why = format!("this session has had {FOREMEN_MAX} such processes");
            return Some((found.control.clone(), Err(why)));
        }
        let order = found.order.clone();
        // The fork server has the daemon's user. Where workers have others, so must the processes
        // that load drivers.
        let copied = copied.filter(|_| order.user.is_none());
        let group = found.group.as_ref().map(|group| Group::path(group).to_owned());
        Some((found.control.clone(), Ok(Request { worker, order, group, copied })))
    }
}
