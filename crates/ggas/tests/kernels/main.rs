//! Kernels of real drivers on heaps: in one process, between processes of one host, and by proxy.
//!
//! Each PE of a test of several processes is this test's own binary, started again with its task in its environment.

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

/// A member of somebody else's test; nothing by itself.
#[test]
fn member_of_another_test() {
    member::serve();
}
