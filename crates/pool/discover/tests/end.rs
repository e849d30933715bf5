//! The end of a search, in a process of its own, because the test counts threads.

use penstock_discover::search;
use penstock_trial::{in_time, wait_for};

#[test]
fn a_search_ends_in_time_and_leaves_no_thread() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    in_time("a search", search).unwrap();
    let before = threads();
    search().unwrap();
    wait_for("the end of the threads", || threads() <= before);
}
