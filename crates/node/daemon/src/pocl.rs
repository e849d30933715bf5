//! Which platforms are PoCL.

use penstock_cl_sys::CL_PLATFORM_NAME;
use penstock_wire::describe::Info;

/// Returns whether a platform is PoCL, whose compiler runs the linker as a program.
pub(crate) fn is_pocl(info: &Info) -> bool {
    let name = penstock_wire::describe::find(info, CL_PLATFORM_NAME).unwrap_or_default();
    name.starts_with(b"Portable Computing Language")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pocl_runs_programs() {
        for (name, is) in [("Portable Computing Language\0", true), ("Intel(R) OpenCL\0", false)] {
            assert_eq!(is_pocl(&vec![(CL_PLATFORM_NAME, name.into())]), is, "{name}");
        }
        assert!(!is_pocl(&Vec::new()));
    }
}
