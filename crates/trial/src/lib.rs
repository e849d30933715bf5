//! What tests inject into Penstock: random delays, which make rare orders of events happen within
//! seconds, and planted defects, which show that the checker finds them.
//!
//! Without the features `test-delays` and `planted`, which builds for users do not have, the
//! functions of this crate do nothing.
#![forbid(unsafe_code)]

mod defect;
mod delay;

pub use defect::{Defect, planted, planted_name};
pub use delay::{Place, delay, is_put_off};
