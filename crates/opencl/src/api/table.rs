//! The list of all functions: the dispatch table of the ICD loader, and functions by name.
//! docs/opencl.md is generated from it.

use std::ptr::without_provenance;

use crate::edge::Stub;
use penstock_cl_sys::{CL_ICD2_TAG_KHR, SLOTS, cl_icd_dispatch, slot};

/// Lists every slot of the dispatch table, so that a missing one does not compile: the functions of
/// each module, those that the loader itself implements (`tag`), those that refuse (`none`), and
/// functions without a slot (`named`).
macro_rules! functions {
    (
        $(in $module:ident { $($made:ident),* $(,)? })*
        tag { $($tagged_module:ident::$tagged:ident),* $(,)? }
        none { $($refused:ident),* $(,)? }
        named { $($named_module:ident::$named:ident),* $(,)? }
    ) => {
        const FUNCTIONS: cl_icd_dispatch = cl_icd_dispatch {
            $($($made: Some(super::$module::$made),)*)*
            $($tagged: Some(super::$tagged_module::$tagged),)*
            $($refused: Stub::REFUSE,)*
        };

        /// Implemented functions, each with its module in [`crate::api`].
        pub const IMPLEMENTED: &[(&str, &str)] = &[
            $($((stringify!($made), stringify!($module)),)*)*
            $((stringify!($tagged), stringify!($tagged_module)),)*
            $((stringify!($named), stringify!($named_module)),)*
        ];

        /// Functions that fail with `CL_INVALID_OPERATION`.
        pub const REFUSED: &[&str] = &[$(stringify!($refused),)*];

        static BY_NAME: Table<{ IMPLEMENTED.len() }> = Table([
            $($((stringify!($made), super::$module::$made as *const ()),)*)*
            $((stringify!($tagged), super::$tagged_module::$tagged as *const ()),)*
            $((stringify!($named), super::$named_module::$named as *const ()),)*
        ]);

        const TAGGED: &[usize] = &[$(slot!($tagged),)*];
    };
}

functions! {
    in platform { clGetPlatformInfo, clUnloadPlatformCompiler }
    in icd { clGetExtensionFunctionAddress, clGetExtensionFunctionAddressForPlatform }
    in device {
        clGetDeviceIDs, clGetDeviceInfo, clCreateSubDevices, clRetainDevice, clReleaseDevice, clGetDeviceAndHostTimer,
        clGetHostTimer,
    }
    in context {
        clCreateContext, clCreateContextFromType, clRetainContext, clReleaseContext, clGetContextInfo,
        clSetContextDestructorCallback,
    }
    in queue {
        clCreateCommandQueue, clCreateCommandQueueWithProperties, clRetainCommandQueue, clReleaseCommandQueue,
        clGetCommandQueueInfo, clSetCommandQueueProperty, clSetDefaultDeviceCommandQueue, clFlush, clFinish,
    }
    in event {
        clWaitForEvents, clGetEventInfo, clRetainEvent, clReleaseEvent, clGetEventProfilingInfo, clSetEventCallback,
        clCreateUserEvent, clSetUserEventStatus,
    }
    in commands {
        clEnqueueMarkerWithWaitList, clEnqueueBarrierWithWaitList, clEnqueueMarker, clEnqueueBarrier,
        clEnqueueWaitForEvents, clEnqueueNativeKernel,
    }
    in sampler { clCreateSampler, clCreateSamplerWithProperties, clRetainSampler, clReleaseSampler, clGetSamplerInfo }
    in memory {
        clCreateBuffer, clCreateBufferWithProperties, clCreateSubBuffer, clCreatePipe, clRetainMemObject,
        clReleaseMemObject, clGetMemObjectInfo, clGetPipeInfo, clSetMemObjectDestructorCallback,
    }
    in buffer {
        clEnqueueReadBuffer, clEnqueueWriteBuffer, clEnqueueReadBufferRect, clEnqueueWriteBufferRect,
        clEnqueueCopyBuffer, clEnqueueCopyBufferRect, clEnqueueFillBuffer, clEnqueueMigrateMemObjects,
    }
    in image {
        clCreateImage, clCreateImageWithProperties, clCreateImage2D, clCreateImage3D, clGetSupportedImageFormats,
        clGetImageInfo,
    }
    in pixels {
        clEnqueueReadImage, clEnqueueWriteImage, clEnqueueFillImage, clEnqueueCopyImage, clEnqueueCopyImageToBuffer,
        clEnqueueCopyBufferToImage,
    }
    in map { clEnqueueMapBuffer, clEnqueueMapImage, clEnqueueUnmapMemObject }
    in svm {
        clSVMAlloc, clSVMFree, clEnqueueSVMFree, clEnqueueSVMMemcpy, clEnqueueSVMMemFill, clEnqueueSVMMap,
        clEnqueueSVMUnmap, clEnqueueSVMMigrateMem,
    }
    in program {
        clCreateProgramWithSource, clCreateProgramWithIL, clCreateProgramWithBinary,
        clCreateProgramWithBuiltInKernels, clRetainProgram, clReleaseProgram, clSetProgramReleaseCallback,
        clSetProgramSpecializationConstant, clGetProgramInfo, clGetProgramBuildInfo,
    }
    in build { clBuildProgram, clCompileProgram, clLinkProgram }
    in kernel {
        clCreateKernel, clCloneKernel, clCreateKernelsInProgram, clRetainKernel, clReleaseKernel, clSetKernelArg,
        clSetKernelArgSVMPointer, clSetKernelExecInfo, clGetKernelInfo, clGetKernelArgInfo, clGetKernelWorkGroupInfo,
        clGetKernelSubGroupInfo, clGetKernelSubGroupInfoKHR,
    }
    in launch { clEnqueueNDRangeKernel, clEnqueueTask }

    tag { platform::clGetPlatformIDs, platform::clUnloadCompiler }

    none {
        // Extensions of graphics APIs, and cl_ext_device_fission, which is core in OpenCL 1.2.
        clCreateFromGLBuffer, clCreateFromGLTexture, clCreateFromGLTexture2D, clCreateFromGLTexture3D,
        clCreateFromGLRenderbuffer, clGetGLObjectInfo, clGetGLTextureInfo, clEnqueueAcquireGLObjects,
        clEnqueueReleaseGLObjects, clGetGLContextInfoKHR, clCreateEventFromGLsyncKHR, clGetDeviceIDsFromD3D10KHR,
        clCreateFromD3D10BufferKHR, clCreateFromD3D10Texture2DKHR, clCreateFromD3D10Texture3DKHR,
        clEnqueueAcquireD3D10ObjectsKHR, clEnqueueReleaseD3D10ObjectsKHR, clGetDeviceIDsFromD3D11KHR,
        clCreateFromD3D11BufferKHR, clCreateFromD3D11Texture2DKHR, clCreateFromD3D11Texture3DKHR,
        clEnqueueAcquireD3D11ObjectsKHR, clEnqueueReleaseD3D11ObjectsKHR, clCreateFromDX9MediaSurfaceKHR,
        clGetDeviceIDsFromDX9MediaAdapterKHR, clEnqueueAcquireDX9MediaSurfacesKHR,
        clEnqueueReleaseDX9MediaSurfacesKHR, clCreateFromEGLImageKHR, clEnqueueAcquireEGLObjectsKHR,
        clEnqueueReleaseEGLObjectsKHR, clCreateEventFromEGLSyncKHR, clCreateSubDevicesEXT, clRetainDeviceEXT,
        clReleaseDeviceEXT,
    }
    named {
        icd::clIcdGetPlatformIDsKHR, icd::clIcdGetFunctionAddressForPlatformKHR, icd::clIcdSetPlatformDispatchDataKHR,
        queue::clCreateCommandQueueWithPropertiesKHR,
        launch::clGetKernelSuggestedLocalWorkSizeKHR, program::clCreateProgramWithILKHR,
        heap::clCreateGlobalBufferPENSTOCK, heap::clEnqueueCollectiveNDRangeKernelPENSTOCK,
        heap::clGetGlobalBufferInfoPENSTOCK, heap::clAbortGlobalBufferPENSTOCK, heap::clResetGlobalBufferPENSTOCK,
    }
}

/// Addresses of functions by name.
struct Table<const N: usize>([(&'static str, *const ()); N]);

// SAFETY: addresses of code, which no thread writes.
unsafe impl<const N: usize> Sync for Table<N> {}

/// Slots of the dispatch table.
#[repr(transparent)]
struct Slots([*const (); SLOTS]);

// SAFETY: as for `Table`.
unsafe impl Sync for Slots {}

static DISPATCH: Slots = Slots(slots());

/// Returns the table that the loader requires. "The clGetPlatformIDs and clUnloadCompiler entries
/// ... must be CL_ICD2_TAG_KHR": the loader implements these two itself.
const fn slots() -> [*const (); SLOTS] {
    // SAFETY: the structure has only function pointers, none of them empty, and each is an address.
    let mut slots: [*const (); SLOTS] = unsafe { std::mem::transmute(FUNCTIONS) };
    let mut at = 0;
    while at < TAGGED.len() {
        slots[TAGGED[at]] = without_provenance(CL_ICD2_TAG_KHR);
        at += 1;
    }
    slots
}

/// Returns the value of the first word of each object.
pub fn dispatch() -> *mut () {
    DISPATCH.0.as_ptr().cast_mut().cast()
}

/// Returns the address of an implemented function.
pub fn address(name: &[u8]) -> Option<*const ()> {
    BY_NAME.0.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, address)| *address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_cl_sys::CORE_FUNCTIONS;

    #[test]
    fn no_slot_is_empty_and_two_are_tagged() {
        let tags: Vec<_> =
            (0..SLOTS).filter(|at| DISPATCH.0[*at].addr() == CL_ICD2_TAG_KHR).collect();
        assert_eq!(tags, [slot!(clGetPlatformIDs), slot!(clUnloadCompiler)]);
        assert!(DISPATCH.0.iter().all(|slot| !slot.is_null()));
    }

    #[test]
    fn every_function_of_the_core_is_listed_once() {
        for (name, _) in CORE_FUNCTIONS {
            let made = IMPLEMENTED.iter().filter(|(known, _)| known == name).count();
            let refused = REFUSED.iter().filter(|known| *known == name).count();
            assert_eq!(made + refused, 1, "{name}");
            assert_eq!(address(name.as_bytes()).is_some(), made == 1, "{name}");
        }
        assert_eq!(address(b"clNoSuchFunction"), None);
    }

    #[test]
    fn slots_lead_to_their_functions() {
        assert_eq!(DISPATCH.0[slot!(clFinish)], address(b"clFinish").unwrap());
        assert_eq!(DISPATCH.0[slot!(clGetPlatformInfo)], address(b"clGetPlatformInfo").unwrap());
    }
}
