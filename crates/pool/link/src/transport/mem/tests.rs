use std::path::Path;

use super::*;
use crate::stream::Stream;
use crate::transport::tests::TestAddresses;
use crate::transport::tests::support::soon;

pub(in crate::transport) fn addresses(folder: &Path) -> TestAddresses {
    TestAddresses::at(format!("mem:{}", folder.file_name().unwrap().display()))
}

crate::transport::tests::cases! { crate::transport::tests::plain(addresses);
    frames: [
        frames_cut_anywhere_are_a_hang_up_and_nothing_more,
        garbage_is_refused_by_the_table,
    ]
}

#[test]
fn a_pipe_holds_what_the_test_allows_and_is_cut_where_the_test_says() {
    let course = Course { bytes_max: 10, ..Course::default() };
    let up = Pipe::of(Course { cut_behind: Some(15), ..course }).unwrap();
    let (one, other) = pair(up, Pipe::of(course).unwrap()).unwrap();
    let send = |bytes: &[u8]| one.send_now(&[IoSlice::new(bytes)]);
    assert_eq!(send(&[7; 4]).unwrap(), Some(4));
    assert_eq!(send(&[8; 20]).unwrap(), Some(6));
    assert_eq!(send(&[9; 1]).unwrap(), None);
    let mut heard = [0; 20];
    assert_eq!(other.recv_now(&mut heard[..3]).unwrap(), Some(3));
    assert_eq!(send(&[9; 20]).unwrap(), Some(3));
    assert_eq!(other.recv_now(&mut heard).unwrap(), Some(10));
    assert_eq!(send(&[9; 20]).unwrap(), Some(2));
    assert!(matches!(send(&[9; 1]), Err(LinkError::Closed)));
    assert_eq!(other.recv_now(&mut heard).unwrap(), Some(2));
    assert!(matches!(other.recv_now(&mut heard), Err(LinkError::Closed)));
}

#[test]
fn a_writer_without_room_sleeps_until_there_is_some_or_the_end_comes() {
    let pipe = || Pipe::of(Course { bytes_max: 10, ..Course::default() }).unwrap();
    let (one, other) = pair(pipe(), pipe()).unwrap();
    let (one, other) = (Stream::new(one), Stream::new(other));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            one.write_all_until(&[1; 100_000], soon()).unwrap();
            assert!(one.write_all_until(&[1; 100], soon()).is_err());
        });
        let mut heard = vec![0; 100_000];
        other.read_exact_until(&mut heard, soon()).unwrap();
        assert_eq!(heard, vec![1; 100_000]);
        other.shutdown();
    });
}

#[test]
fn a_pipe_that_is_stuck_takes_nothing_more_and_nobody_hangs_up() {
    let course = Course { stuck_behind: Some(15), ..Course::default() };
    let (one, other) = pair(Pipe::of(course).unwrap(), Pipe::of(course).unwrap()).unwrap();
    let (one, other) = (Stream::new(one), Stream::new(other));
    assert_eq!(one.send_now(&[IoSlice::new(&[7; 20])]).unwrap(), Some(15));
    assert_eq!(other.recv_now(&mut [0; 20]).unwrap(), Some(15));
    assert_eq!(one.send_now(&[IoSlice::new(&[7; 1])]).unwrap(), None);
    assert!(!one.wait(Readiness::Writable, Some(Instant::now())).unwrap());
    assert!(!one.has_hung_up() && !other.has_hung_up());
}
