//! What tests inject into Penstock: random delays, so that rare orders of events happen within
//! seconds, and planted defects, which show that the checker finds them.
//!
//! Without the features `test-delays` and `planted`, which a build for users does not have, each
//! function of this crate compiles to nothing.
#![forbid(unsafe_code)]

mod defect;
mod delay;

pub use defect::{Defect, planted, planted_name};
pub use delay::{Place, delay, is_put_off};
