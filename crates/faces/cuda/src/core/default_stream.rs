//! The default streams of threads, and the streams that handles of programs stand for.

use std::cell::RefCell;
use std::sync::Arc;

use penstock_cuda_sys::driver::*;

use super::context::Context;
use super::stream::{Stream, StreamKind};
use crate::edge::{CuResult, DefaultStream, Object as _, check_process};

impl Stream {
    /// Returns the stream of a handle, and its context.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_HANDLE` if it is not a handle of a stream; the errors of
    /// [`Context::current`] for default streams.
    #[inline]
    pub(crate) fn resolve(
        raw: CUstream,
        default: DefaultStream,
    ) -> CuResult<(Arc<Context>, Arc<Self>)> {
        let per_thread = match raw.addr() {
            0 => default == DefaultStream::PerThread,
            CU_STREAM_LEGACY => false,
            CU_STREAM_PER_THREAD => true,
            _ => {
                check_process()?;
                let stream = Self::borrow(raw)?;
                return Ok((stream.context()?, stream));
            }
        };
        let context = Context::current()?;
        let stream = if per_thread { of_thread(&context)? } else { context.legacy.clone() };
        Ok((context, stream))
    }

    /// Returns the stream of a handle in a given context, which need not be current.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_HANDLE` if it is not a handle of a stream of this context.
    pub(crate) fn resolve_in(raw: CUstream, context: &Arc<Context>) -> CuResult<Arc<Self>> {
        match raw.addr() {
            0 | CU_STREAM_LEGACY => Ok(context.legacy.clone()),
            CU_STREAM_PER_THREAD => of_thread(context),
            _ => {
                let stream = Self::borrow(raw)?;
                if stream.owner() == context.number() {
                    Ok(stream)
                } else {
                    Err(CUDA_ERROR_INVALID_HANDLE)
                }
            }
        }
    }
}

/// The default streams of this thread, one for each context in which the thread used one.
struct OfThread(Vec<(u64, Arc<Stream>)>);

impl Drop for OfThread {
    fn drop(&mut self) {
        // A forked child must not wait for a lock that a thread of its parent held.
        if check_process().is_err() {
            std::mem::take(&mut self.0).into_iter().for_each(std::mem::forget);
            return;
        }
        for (_, stream) in self.0.drain(..) {
            if let Ok(context) = stream.context() {
                context.remove(&stream);
            }
        }
    }
}

thread_local! {
    static OF_THREAD: RefCell<OfThread> = const { RefCell::new(OfThread(Vec::new())) };
}

/// Returns the calling thread's default stream in a context.
fn of_thread(context: &Arc<Context>) -> CuResult<Arc<Stream>> {
    let number = context.number();
    let known = OF_THREAD
        .with_borrow(|all| all.0.iter().find(|(of, _)| *of == number).map(|(_, it)| it.clone()));
    if let Some(stream) = known {
        return Ok(stream);
    }
    let stream = context.new_stream(StreamKind::Blocking, 0, 0)?;
    context.add(&stream);
    OF_THREAD.with_borrow_mut(|all| {
        // Drops the streams of contexts that are gone.
        all.0.retain(|(_, stream)| !stream.has_lost_context());
        all.0.push((number, stream.clone()));
    });
    Ok(stream)
}
