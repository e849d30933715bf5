//! Owners of references to the driver's objects.

use penstock_cl_sys::{
    cl_command_queue, cl_context, cl_event, cl_kernel, cl_mem, cl_program, cl_sampler,
};
use penstock_wire::status::Status;

use super::api::{self, function};

/// Defines the owner of one reference to an OpenCL object, which it releases when dropped.
macro_rules! owned {
    ($($name:ident($handle:ty), $release:ident;)*) => {$(
        /// One reference to an object of the driver.
        #[derive(Debug)]
        pub(super) struct $name($handle);

        // SAFETY: any thread may use OpenCL's objects; a lock protects a kernel's arguments.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl $name {
            /// Takes over one reference from the caller.
            pub(super) fn take(handle: $handle) -> Self {
                Self(handle)
            }

            pub(super) fn raw(&self) -> $handle {
                self.0
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                if let Ok(release) = function!($release) {
                    // SAFETY: the reference is ours, and given back once.
                    let _ = unsafe { release(self.0) };
                }
            }
        }
    )*};
}

owned! {
    OwnedContext(cl_context), clReleaseContext;
    OwnedQueue(cl_command_queue), clReleaseCommandQueue;
    OwnedMem(cl_mem), clReleaseMemObject;
    OwnedEvent(cl_event), clReleaseEvent;
    OwnedProgram(cl_program), clReleaseProgram;
    OwnedKernel(cl_kernel), clReleaseKernel;
    OwnedSampler(cl_sampler), clReleaseSampler;
}

impl OwnedQueue {
    /// `clFinish`.
    pub(super) fn finish(&self) -> Result<(), Status> {
        let finish = function!(clFinish)?;
        // SAFETY: the queue lives.
        api::check(unsafe { finish(self.raw()) })
    }
}
