//! The end of a search, in a process of its own, because the test counts threads.

use std::time::{Duration, Instant};

use penstock_discover::{SEARCH_MAX, search};

#[test]
fn a_search_ends_in_time_and_leaves_no_thread() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let began = Instant::now();
    search().unwrap();
    // Twice the time for a busy host.
    assert!(began.elapsed() < 2 * SEARCH_MAX, "{:?}", began.elapsed());
    let before = threads();
    search().unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while threads() > before && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(threads() <= before, "{} threads, before {before}", threads());
}
