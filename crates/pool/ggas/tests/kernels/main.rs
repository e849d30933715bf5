//! Kernels of real drivers on heaps: in one process, between processes of one host, and by proxy.
//!
//! In tests with processes each PE is this binary, started again with its task in the environment.

mod barriers;
mod ends;
mod layout;
mod litmus;
mod member;
mod mesh;
mod pe;
mod speed;
#[cfg_attr(not(feature = "ucx"), path = "no_ucx.rs")]
mod ucx;
mod verbs;

/// Runs a member of another test; does nothing by itself.
#[test]
fn member_of_another_test() {
    member::serve();
}
