//! A value that lives from the first `nvmlInit` to the last `nvmlShutdown` in a process.
//!
//! It is used without a lock, so that a thread that waits for a node blocks no other. A forked
//! child never takes its parent's lock, which a thread that the child does not have may hold.

use std::sync::{Arc, MutexGuard, OnceLock};

use penstock_process::Lock;

use crate::code;

/// A value that each process has separately.
pub(crate) struct Held<T>(OnceLock<Box<Home<T>>>);

/// State of one process, and of the children that it forks.
struct Home<T> {
    process: u32,
    state: Lock<State<T>>,
    child: Held<T>,
}

struct State<T> {
    value: Option<Arc<T>>,
    /// Number of successful `nvmlInit` calls minus that of `nvmlShutdown` calls.
    inits: u32,
}

impl<T> Held<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        let process = std::process::id();
        let mut held = self;
        loop {
            let home = held.0.get_or_init(|| {
                let state = Lock::new(State { value: None, inits: 0 });
                Box::new(Home { process, state, child: Self::new() })
            });
            if home.process == process {
                return home.state.lock();
            }
            // This state is the parent's, which the child neither locks nor closes.
            held = &home.child;
        }
    }

    /// Counts a use. The first one makes the value.
    pub(crate) fn init(&self, make: impl FnOnce() -> Result<T, u32>) -> Result<(), u32> {
        let mut state = self.state();
        if state.value.is_none() {
            state.value = Some(Arc::new(make()?));
        }
        state.inits = state.inits.saturating_add(1);
        Ok(())
    }

    /// Ends a use. After the last one, the value is dropped as soon as no thread uses it.
    pub(crate) fn shutdown(&self) -> Result<(), u32> {
        let mut state = self.state();
        state.inits = state.inits.checked_sub(1).ok_or(code::UNINITIALIZED)?;
        let last = if state.inits == 0 { state.value.take() } else { None };
        drop(state);
        drop(last);
        Ok(())
    }

    /// Returns the value, if there is one.
    pub(crate) fn get(&self) -> Result<Arc<T>, u32> {
        self.state().value.clone().ok_or(code::UNINITIALIZED)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn it_is_there_from_the_first_to_the_last() {
        static HELD: Held<u32> = Held::new();
        assert_eq!(HELD.get(), Err(code::UNINITIALIZED));
        assert_eq!(HELD.shutdown(), Err(code::UNINITIALIZED));
        assert_eq!(HELD.init(|| Err(code::DRIVER_NOT_LOADED)), Err(code::DRIVER_NOT_LOADED));
        HELD.init(|| Ok(5)).unwrap();
        HELD.init(|| Ok(6)).unwrap();
        HELD.shutdown().unwrap();
        assert_eq!(HELD.get().as_deref(), Ok(&5));
        HELD.shutdown().unwrap();
        assert_eq!(HELD.get(), Err(code::UNINITIALIZED));
        HELD.init(|| Ok(7)).unwrap();
        assert_eq!(HELD.get().as_deref(), Ok(&7));
    }

    #[test]
    fn who_waits_keeps_nobody_else_waiting() {
        static HELD: Held<u32> = Held::new();
        HELD.init(|| Ok(5)).unwrap();
        let ((go, goes), (done, is_done), (got, has_got)) =
            (mpsc::channel::<()>(), mpsc::channel(), mpsc::channel());
        let slow = thread::spawn(move || {
            let value = HELD.get().unwrap();
            got.send(()).unwrap();
            goes.recv().unwrap();
            *value
        });
        has_got.recv().unwrap();
        let quick = thread::spawn(move || done.send(HELD.get().map(|value| *value)));
        assert_eq!(is_done.recv_timeout(penstock_trial::patience()), Ok(Ok(5)));
        // The value stays alive for the thread that still uses it.
        HELD.shutdown().unwrap();
        go.send(()).unwrap();
        assert_eq!((slow.join().unwrap(), quick.join().unwrap()), (5, Ok(())));
    }

    #[test]
    fn a_forked_child_opens_its_own_whoever_holds_the_lock() {
        static HELD: Held<u32> = Held::new();
        HELD.init(|| Ok(5)).unwrap();
        let (held, is_held) = mpsc::channel();
        let (go, goes) = mpsc::channel::<()>();
        let holder = thread::spawn(move || {
            let _state = HELD.state();
            held.send(()).unwrap();
            goes.recv().unwrap();
        });
        is_held.recv().unwrap();
        // SAFETY: the child calls only the functions under test, and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the alarm only ends this child, if it hangs.
            unsafe { libc::alarm(10) };
            let first = HELD.get().is_err();
            let own = HELD.init(|| Ok(6)).is_ok() && HELD.get().is_ok_and(|value| *value == 6);
            // SAFETY: this ends the child.
            unsafe { libc::_exit(if first && own { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: the pointer is valid for the write of the status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        go.send(()).unwrap();
        holder.join().unwrap();
        assert_eq!(status, 0);
        assert_eq!(HELD.get().as_deref(), Ok(&5));
    }
}
