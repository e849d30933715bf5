//! The profiler's switch: there is no profiler to hear it.

use crate::core::context::Context;
use crate::edge::cu_entry;

cu_entry! {
    /// `cuProfilerStart`.
    fn cuProfilerStart() {
        Context::current().map(drop)
    }
    /// `cuProfilerStop`.
    fn cuProfilerStop() {
        Context::current().map(drop)
    }
}
