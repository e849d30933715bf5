//! What tests inject into Penstock: random delays, which make rare orders of events happen within
//! seconds, and planted defects, which show that the checker finds them. Tests also say with this
//! crate what they cannot check on their host, and it counts what they skip. They draw random
//! numbers with it, keep their files in its folders, and wait with its patience.
//!
//! Without the features `test-delays` and `planted`, which builds for users do not have, `delay`
//! and `planted` do nothing. Only tests call [`skip`] and [`patience`], and use [`Random`] and
//! [`Folder`].
#![forbid(unsafe_code)]

mod defect;
mod delay;
mod folder;
mod patience;
mod random;
mod skip;

pub use defect::{Defect, planted, planted_name};
pub use delay::{Place, delay, is_put_off};
pub use folder::Folder;
pub use patience::{deadline, in_time, isolate, patience, wait_for};
pub use random::Random;
pub use skip::{Need, compiler, is_compiled, is_required, skip};
