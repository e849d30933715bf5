//! The command `penstock` as a process. The tests are one program, because the building of a
//! program takes longer than most of its tests.

mod administer;
mod common;
mod cuda;
mod daemon;
mod discover;
mod doctor;
mod documents;
mod energy;
mod keys;
mod metrics;
mod named;
mod queries;
mod run;
mod surroundings;
mod top;
mod vm;
