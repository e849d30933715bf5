//! The dispatch table of the ICD loader, and functions by name. Both are made from the lists
//! (`functions!`) at the top of each module of [`crate::api`], as is docs/opencl.md.

use std::ptr::without_provenance;

use crate::edge::Stub;
use penstock_cl_sys::{CL_ICD2_TAG_KHR, SLOT_NAMES, SLOTS, cl_icd_dispatch, slot};

/// Makes the tables from the lists of the modules, and from the list of functions that refuse.
macro_rules! modules {
    (
        $($module:ident),* $(,)?;
        none { $($refused:ident),* $(,)? }
    ) => {
        const FUNCTIONS: cl_icd_dispatch = {
            // SAFETY: each field is an optional function pointer or a raw pointer. Zero is the
            // empty one.
            let mut table: cl_icd_dispatch = unsafe { std::mem::zeroed() };
            $(super::$module::fill(&mut table);)*
            $(table.$refused = Stub::REFUSE;)*
            table
        };

        /// Implemented functions of each module of [`crate::api`], with their addresses.
        pub const IMPLEMENTED: &[(&str, &[(&str, *const ())])] =
            &[$((stringify!($module), super::$module::FUNCTIONS),)*];

        /// Functions that fail with `CL_INVALID_OPERATION`.
        pub const REFUSED: &[&str] = &[$(stringify!($refused),)*];
    };
}

modules! {
    platform, icd, device, context, queue, event, commands, sampler, memory, buffer, image, pixels,
    map, svm, program, build, kernel, launch, heap;
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
}

/// Slots of the dispatch table.
#[repr(transparent)]
struct Slots([*const (); SLOTS]);

// SAFETY: addresses of code, which no thread writes.
unsafe impl Sync for Slots {}

/// Slots of the two functions that the loader implements itself.
const TAGGED: [usize; 2] = [slot!(clGetPlatformIDs), slot!(clUnloadCompiler)];

static DISPATCH: Slots = Slots(slots());

/// Returns the table that the loader requires. A slot without a function does not compile. "The
/// clGetPlatformIDs and clUnloadCompiler entries ... must be CL_ICD2_TAG_KHR": the loader
/// implements these two itself.
const fn slots() -> [*const (); SLOTS] {
    // SAFETY: the structure has only function pointers, which are addresses or null.
    let mut slots: [*const (); SLOTS] = unsafe { std::mem::transmute(FUNCTIONS) };
    let mut at = 0;
    while at < SLOTS {
        assert!(!slots[at].is_null(), "{}", SLOT_NAMES[at]);
        at += 1;
    }
    at = 0;
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
    let mut known = IMPLEMENTED.iter().flat_map(|(_, functions)| *functions);
    known.find(|(known, _)| known.as_bytes() == name).map(|(_, address)| *address)
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
            let known = IMPLEMENTED.iter().flat_map(|(_, functions)| *functions);
            let made = known.filter(|(known, _)| known == name).count();
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
