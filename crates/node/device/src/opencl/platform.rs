use penstock_cl_sys::{CL_PLATFORM_NAME, CL_PLATFORM_VERSION, cl_platform_id};
use penstock_wire::status::Status;

use super::api::{self, function};

/// An OpenCL platform, which lives as long as the process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Platform {
    handle: cl_platform_id,
    version: (u32, u32),
}

// SAFETY: a platform lives as long as the loader, which is never unloaded.
unsafe impl Send for Platform {}
// SAFETY: as above, and any thread may query it.
unsafe impl Sync for Platform {}

impl Platform {
    pub(super) fn from_handle(handle: cl_platform_id) -> Self {
        let version = ask(handle, CL_PLATFORM_VERSION).map(|bytes| version(&api::text(&bytes)));
        Self { handle, version: version.unwrap_or_default() }
    }

    pub(super) fn raw(self) -> cl_platform_id {
        self.handle
    }

    pub(super) fn name(self) -> String {
        ask(self.handle, CL_PLATFORM_NAME).map(|bytes| api::text(&bytes)).unwrap_or_default()
    }

    pub(super) fn ask(self, name: u32) -> Result<Vec<u8>, Status> {
        ask(self.handle, name)
    }

    /// Whether it has at least this version of OpenCL.
    pub(super) fn is_at_least(self, major: u32, minor: u32) -> bool {
        self.version >= (major, minor)
    }

    /// Fails if the platform is older than this version. The loader calls a driver's function
    /// without checking that the driver has it, so newer functions must not be called.
    pub(super) fn needs(self, major: u32, minor: u32) -> Result<(), Status> {
        if self.is_at_least(major, minor) { Ok(()) } else { Err(Status::INVALID_OPERATION) }
    }
}

fn ask(platform: cl_platform_id, name: u32) -> Result<Vec<u8>, Status> {
    let get = function!(clGetPlatformInfo)?;
    // SAFETY: the platform is one of the loader's, and `query` passes a location of the given size.
    api::query(|size, value, true_size| unsafe { get(platform, name, size, value, true_size) })
}

/// Parses "OpenCL 3.0 vendor's words".
fn version(text: &str) -> (u32, u32) {
    let number = text.split_whitespace().nth(1).unwrap_or_default();
    let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions_are_read() {
        assert_eq!(version("OpenCL 3.0 PoCL 3.1+debian"), (3, 0));
        assert_eq!(version("OpenCL 1.2"), (1, 2));
        assert_eq!(version("nonsense"), (0, 0));
        assert_eq!(version(""), (0, 0));
    }
}
