//! The profiler's switch. It has no effect, because there is no profiler.

use crate::core::context::Context;
use crate::edge::cu_entry;

cu_entry! {
    fn cuProfilerStart, cuProfilerStop() {
        Context::current().map(drop)
    }
}
