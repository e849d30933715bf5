//! Results of runtime functions: their numbers, names and descriptions.
//!
//! Most numbers and their descriptions are the driver interface's.

use core::ffi::{CStr, c_int};

use crate::driver::CUresult;

/// A code with its name and description.
#[derive(Clone, Copy, Debug)]
pub struct NamedCode {
    pub code: c_int,
    pub name: &'static CStr,
    /// The description, if it is not the driver's.
    pub text: Option<&'static CStr>,
}

macro_rules! codes {
    ($($constant:ident = $number:literal, $name:literal, $text:expr;)*) => {
        $(pub const $constant: c_int = $number;)*

        /// All codes.
        pub const CODES: &[NamedCode] =
            &[$(NamedCode { code: $constant, name: $name, text: $text },)*];
    };
}

codes! {
    SUCCESS = 0, c"cudaSuccess", None;
    INVALID_VALUE = 1, c"cudaErrorInvalidValue", None;
    MEMORY_ALLOCATION = 2, c"cudaErrorMemoryAllocation", None;
    INITIALIZATION_ERROR = 3, c"cudaErrorInitializationError", None;
    CUDART_UNLOADING = 4, c"cudaErrorCudartUnloading", None;
    PROFILER_DISABLED = 5, c"cudaErrorProfilerDisabled", None;
    PROFILER_NOT_INITIALIZED = 6, c"cudaErrorProfilerNotInitialized", None;
    PROFILER_ALREADY_STARTED = 7, c"cudaErrorProfilerAlreadyStarted", None;
    PROFILER_ALREADY_STOPPED = 8, c"cudaErrorProfilerAlreadyStopped", None;
    INVALID_CONFIGURATION = 9, c"cudaErrorInvalidConfiguration", Some(c"invalid configuration argument");
    INVALID_PITCH_VALUE = 12, c"cudaErrorInvalidPitchValue", Some(c"invalid pitch argument");
    INVALID_SYMBOL = 13, c"cudaErrorInvalidSymbol", Some(c"invalid device symbol");
    INVALID_HOST_POINTER = 16, c"cudaErrorInvalidHostPointer", Some(c"invalid host pointer");
    INVALID_DEVICE_POINTER = 17, c"cudaErrorInvalidDevicePointer", Some(c"invalid device pointer");
    INVALID_TEXTURE = 18, c"cudaErrorInvalidTexture", Some(c"invalid texture reference");
    INVALID_TEXTURE_BINDING = 19, c"cudaErrorInvalidTextureBinding", Some(c"texture is not bound to a pointer");
    INVALID_CHANNEL_DESCRIPTOR = 20, c"cudaErrorInvalidChannelDescriptor", Some(c"invalid channel descriptor");
    INVALID_MEMCPY_DIRECTION = 21, c"cudaErrorInvalidMemcpyDirection", Some(c"invalid copy direction for memcpy");
    ADDRESS_OF_CONSTANT = 22, c"cudaErrorAddressOfConstant", Some(c"address of a constant was taken");
    TEXTURE_FETCH_FAILED = 23, c"cudaErrorTextureFetchFailed", Some(c"fetch from texture failed");
    TEXTURE_NOT_BOUND = 24, c"cudaErrorTextureNotBound", Some(c"texture cannot be fetched: it is not bound");
    SYNCHRONIZATION_ERROR = 25, c"cudaErrorSynchronizationError", Some(c"incorrect use of synchronization");
    INVALID_FILTER_SETTING = 26, c"cudaErrorInvalidFilterSetting", Some(c"linear filtering not supported for non-float type");
    INVALID_NORM_SETTING = 27, c"cudaErrorInvalidNormSetting", Some(c"read as normalized float not supported for 32-bit integers");
    MIXED_DEVICE_EXECUTION = 28, c"cudaErrorMixedDeviceExecution", Some(c"device emulation and device execution cannot be mixed");
    NOT_YET_IMPLEMENTED = 31, c"cudaErrorNotYetImplemented", Some(c"feature not yet implemented");
    MEMORY_VALUE_TOO_LARGE = 32, c"cudaErrorMemoryValueTooLarge", Some(c"memory size or pointer value too large to fit in 32 bit");
    STUB_LIBRARY = 34, c"cudaErrorStubLibrary", None;
    INSUFFICIENT_DRIVER = 35, c"cudaErrorInsufficientDriver", Some(c"CUDA driver version is insufficient for CUDA runtime version");
    CALL_REQUIRES_NEWER_DRIVER = 36, c"cudaErrorCallRequiresNewerDriver", None;
    INVALID_SURFACE = 37, c"cudaErrorInvalidSurface", Some(c"invalid surface reference");
    DUPLICATE_VARIABLE_NAME = 43, c"cudaErrorDuplicateVariableName", Some(c"two variables have one name");
    DUPLICATE_TEXTURE_NAME = 44, c"cudaErrorDuplicateTextureName", Some(c"two textures have one name");
    DUPLICATE_SURFACE_NAME = 45, c"cudaErrorDuplicateSurfaceName", Some(c"two surfaces have one name");
    DEVICES_UNAVAILABLE = 46, c"cudaErrorDevicesUnavailable", None;
    INCOMPATIBLE_DRIVER_CONTEXT = 49, c"cudaErrorIncompatibleDriverContext", Some(c"incompatible driver context");
    MISSING_CONFIGURATION = 52, c"cudaErrorMissingConfiguration", Some(c"a kernel was launched without a configuration");
    PRIOR_LAUNCH_FAILURE = 53, c"cudaErrorPriorLaunchFailure", Some(c"a launch before this one failed");
    LAUNCH_MAX_DEPTH_EXCEEDED = 65, c"cudaErrorLaunchMaxDepthExceeded", Some(c"launch would exceed the maximum depth of nested launches");
    LAUNCH_FILE_SCOPED_TEX = 66, c"cudaErrorLaunchFileScopedTex", Some(c"launch failed because the kernel uses file-scoped textures that are not registered");
    LAUNCH_FILE_SCOPED_SURF = 67, c"cudaErrorLaunchFileScopedSurf", Some(c"launch failed because the kernel uses file-scoped surfaces that are not registered");
    SYNC_DEPTH_EXCEEDED = 68, c"cudaErrorSyncDepthExceeded", Some(c"synchronization failed because the grid is nested too deep");
    LAUNCH_PENDING_COUNT_EXCEEDED = 69, c"cudaErrorLaunchPendingCountExceeded", Some(c"launch would exceed the limit of pending launches");
    INVALID_DEVICE_FUNCTION = 98, c"cudaErrorInvalidDeviceFunction", Some(c"invalid device function");
    NO_DEVICE = 100, c"cudaErrorNoDevice", None;
    INVALID_DEVICE = 101, c"cudaErrorInvalidDevice", None;
    DEVICE_NOT_LICENSED = 102, c"cudaErrorDeviceNotLicensed", None;
    SOFTWARE_VALIDITY_NOT_ESTABLISHED = 103, c"cudaErrorSoftwareValidityNotEstablished", Some(c"integrity checks failed");
    STARTUP_FAILURE = 127, c"cudaErrorStartupFailure", Some(c"startup failure in cuda runtime");
    INVALID_KERNEL_IMAGE = 200, c"cudaErrorInvalidKernelImage", None;
    DEVICE_UNINITIALIZED = 201, c"cudaErrorDeviceUninitialized", None;
    MAP_BUFFER_OBJECT_FAILED = 205, c"cudaErrorMapBufferObjectFailed", None;
    UNMAP_BUFFER_OBJECT_FAILED = 206, c"cudaErrorUnmapBufferObjectFailed", None;
    ARRAY_IS_MAPPED = 207, c"cudaErrorArrayIsMapped", None;
    ALREADY_MAPPED = 208, c"cudaErrorAlreadyMapped", None;
    NO_KERNEL_IMAGE_FOR_DEVICE = 209, c"cudaErrorNoKernelImageForDevice", None;
    ALREADY_ACQUIRED = 210, c"cudaErrorAlreadyAcquired", None;
    NOT_MAPPED = 211, c"cudaErrorNotMapped", None;
    NOT_MAPPED_AS_ARRAY = 212, c"cudaErrorNotMappedAsArray", None;
    NOT_MAPPED_AS_POINTER = 213, c"cudaErrorNotMappedAsPointer", None;
    ECC_UNCORRECTABLE = 214, c"cudaErrorECCUncorrectable", None;
    UNSUPPORTED_LIMIT = 215, c"cudaErrorUnsupportedLimit", None;
    DEVICE_ALREADY_IN_USE = 216, c"cudaErrorDeviceAlreadyInUse", None;
    PEER_ACCESS_UNSUPPORTED = 217, c"cudaErrorPeerAccessUnsupported", None;
    INVALID_PTX = 218, c"cudaErrorInvalidPtx", None;
    INVALID_GRAPHICS_CONTEXT = 219, c"cudaErrorInvalidGraphicsContext", None;
    NVLINK_UNCORRECTABLE = 220, c"cudaErrorNvlinkUncorrectable", None;
    JIT_COMPILER_NOT_FOUND = 221, c"cudaErrorJitCompilerNotFound", None;
    UNSUPPORTED_PTX_VERSION = 222, c"cudaErrorUnsupportedPtxVersion", None;
    JIT_COMPILATION_DISABLED = 223, c"cudaErrorJitCompilationDisabled", None;
    UNSUPPORTED_EXEC_AFFINITY = 224, c"cudaErrorUnsupportedExecAffinity", None;
    UNSUPPORTED_DEV_SIDE_SYNC = 225, c"cudaErrorUnsupportedDevSideSync", None;
    CONTAINED = 226, c"cudaErrorContained", None;
    INVALID_SOURCE = 300, c"cudaErrorInvalidSource", None;
    FILE_NOT_FOUND = 301, c"cudaErrorFileNotFound", None;
    SHARED_OBJECT_SYMBOL_NOT_FOUND = 302, c"cudaErrorSharedObjectSymbolNotFound", None;
    SHARED_OBJECT_INIT_FAILED = 303, c"cudaErrorSharedObjectInitFailed", None;
    OPERATING_SYSTEM = 304, c"cudaErrorOperatingSystem", None;
    INVALID_RESOURCE_HANDLE = 400, c"cudaErrorInvalidResourceHandle", None;
    ILLEGAL_STATE = 401, c"cudaErrorIllegalState", None;
    LOSSY_QUERY = 402, c"cudaErrorLossyQuery", None;
    SYMBOL_NOT_FOUND = 500, c"cudaErrorSymbolNotFound", None;
    NOT_READY = 600, c"cudaErrorNotReady", None;
    ILLEGAL_ADDRESS = 700, c"cudaErrorIllegalAddress", None;
    LAUNCH_OUT_OF_RESOURCES = 701, c"cudaErrorLaunchOutOfResources", None;
    LAUNCH_TIMEOUT = 702, c"cudaErrorLaunchTimeout", None;
    LAUNCH_INCOMPATIBLE_TEXTURING = 703, c"cudaErrorLaunchIncompatibleTexturing", None;
    PEER_ACCESS_ALREADY_ENABLED = 704, c"cudaErrorPeerAccessAlreadyEnabled", None;
    PEER_ACCESS_NOT_ENABLED = 705, c"cudaErrorPeerAccessNotEnabled", None;
    SET_ON_ACTIVE_PROCESS = 708, c"cudaErrorSetOnActiveProcess", None;
    CONTEXT_IS_DESTROYED = 709, c"cudaErrorContextIsDestroyed", None;
    ASSERT = 710, c"cudaErrorAssert", None;
    TOO_MANY_PEERS = 711, c"cudaErrorTooManyPeers", None;
    HOST_MEMORY_ALREADY_REGISTERED = 712, c"cudaErrorHostMemoryAlreadyRegistered", None;
    HOST_MEMORY_NOT_REGISTERED = 713, c"cudaErrorHostMemoryNotRegistered", None;
    HARDWARE_STACK_ERROR = 714, c"cudaErrorHardwareStackError", None;
    ILLEGAL_INSTRUCTION = 715, c"cudaErrorIllegalInstruction", None;
    MISALIGNED_ADDRESS = 716, c"cudaErrorMisalignedAddress", None;
    INVALID_ADDRESS_SPACE = 717, c"cudaErrorInvalidAddressSpace", None;
    INVALID_PC = 718, c"cudaErrorInvalidPc", None;
    LAUNCH_FAILURE = 719, c"cudaErrorLaunchFailure", None;
    COOPERATIVE_LAUNCH_TOO_LARGE = 720, c"cudaErrorCooperativeLaunchTooLarge", None;
    TENSOR_MEMORY_LEAK = 721, c"cudaErrorTensorMemoryLeak", None;
    NOT_PERMITTED = 800, c"cudaErrorNotPermitted", None;
    NOT_SUPPORTED = 801, c"cudaErrorNotSupported", None;
    SYSTEM_NOT_READY = 802, c"cudaErrorSystemNotReady", None;
    SYSTEM_DRIVER_MISMATCH = 803, c"cudaErrorSystemDriverMismatch", None;
    COMPAT_NOT_SUPPORTED_ON_DEVICE = 804, c"cudaErrorCompatNotSupportedOnDevice", None;
    MPS_CONNECTION_FAILED = 805, c"cudaErrorMpsConnectionFailed", None;
    MPS_RPC_FAILURE = 806, c"cudaErrorMpsRpcFailure", None;
    MPS_SERVER_NOT_READY = 807, c"cudaErrorMpsServerNotReady", None;
    MPS_MAX_CLIENTS_REACHED = 808, c"cudaErrorMpsMaxClientsReached", None;
    MPS_MAX_CONNECTIONS_REACHED = 809, c"cudaErrorMpsMaxConnectionsReached", None;
    MPS_CLIENT_TERMINATED = 810, c"cudaErrorMpsClientTerminated", None;
    CDP_NOT_SUPPORTED = 811, c"cudaErrorCdpNotSupported", None;
    CDP_VERSION_MISMATCH = 812, c"cudaErrorCdpVersionMismatch", None;
    STREAM_CAPTURE_UNSUPPORTED = 900, c"cudaErrorStreamCaptureUnsupported", None;
    STREAM_CAPTURE_INVALIDATED = 901, c"cudaErrorStreamCaptureInvalidated", None;
    STREAM_CAPTURE_MERGE = 902, c"cudaErrorStreamCaptureMerge", None;
    STREAM_CAPTURE_UNMATCHED = 903, c"cudaErrorStreamCaptureUnmatched", None;
    STREAM_CAPTURE_UNJOINED = 904, c"cudaErrorStreamCaptureUnjoined", None;
    STREAM_CAPTURE_ISOLATION = 905, c"cudaErrorStreamCaptureIsolation", None;
    STREAM_CAPTURE_IMPLICIT = 906, c"cudaErrorStreamCaptureImplicit", None;
    CAPTURED_EVENT = 907, c"cudaErrorCapturedEvent", None;
    STREAM_CAPTURE_WRONG_THREAD = 908, c"cudaErrorStreamCaptureWrongThread", None;
    TIMEOUT = 909, c"cudaErrorTimeout", None;
    GRAPH_EXEC_UPDATE_FAILURE = 910, c"cudaErrorGraphExecUpdateFailure", None;
    EXTERNAL_DEVICE = 911, c"cudaErrorExternalDevice", None;
    INVALID_CLUSTER_SIZE = 912, c"cudaErrorInvalidClusterSize", None;
    FUNCTION_NOT_LOADED = 913, c"cudaErrorFunctionNotLoaded", None;
    INVALID_RESOURCE_TYPE = 914, c"cudaErrorInvalidResourceType", None;
    INVALID_RESOURCE_CONFIGURATION = 915, c"cudaErrorInvalidResourceConfiguration", None;
    UNKNOWN = 999, c"cudaErrorUnknown", None;
    API_FAILURE_BASE = 10000, c"cudaErrorApiFailureBase", Some(c"failure of an interface");
}

/// Returns the name of a code.
#[must_use]
pub fn name(code: c_int) -> Option<&'static CStr> {
    CODES.iter().find(|known| known.code == code).map(|known| known.name)
}

/// Returns the description of a code.
#[must_use]
pub fn text(code: c_int) -> Option<&'static CStr> {
    let known = CODES.iter().find(|known| known.code == code)?;
    known.text.or_else(|| CUresult(code.cast_unsigned()).entry().map(|known| known.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_name_and_a_text_and_is_there_once() {
        for (index, NamedCode { code, name, .. }) in CODES.iter().enumerate() {
            assert!(name.to_bytes().starts_with(b"cuda"));
            assert!(text(*code).is_some_and(|text| !text.is_empty()), "{name:?} has no text");
            assert!(
                CODES.iter().skip(index + 1).all(|other| other.code != *code),
                "{name:?} is there twice"
            );
        }
    }

    #[test]
    fn a_number_that_is_no_code_has_no_name() {
        assert_eq!((name(10_001), text(10_001)), (None, None));
    }
}
