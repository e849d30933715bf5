//! Hosts of heaps with a stand-in for devices and for the ways to other processes.

use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use penstock_ggas::host::{
    FormedHeap, HeapHost, HeapSite, HostError, HostLimits, Join, Meeting, MeetingMessage,
    MeetingPlan, Release, SECRET_BYTES,
};
use penstock_ggas::{HeapError, Path, Plan, TIMEOUT_DEFAULT, View};
use penstock_link::Stream;
use penstock_trial::{patience, wait_for};

/// Longer than anything in these tests takes, even on a busy machine.
const BYTES: u64 = 10_000;

fn plan(members: &[u32], me: u32) -> Plan {
    Plan {
        id: 5,
        members: members.to_vec(),
        me,
        bytes: BYTES,
        timeout: TIMEOUT_DEFAULT,
        force_proxy: false,
    }
}

fn stream_pair() -> (Stream, Stream) {
    let (one, other) = UnixStream::pair().unwrap();
    (Stream::from_fd(one.into()).unwrap(), Stream::from_fd(other.into()).unwrap())
}

/// A process without devices. Its route is the streams themselves.
#[derive(Clone, Default)]
struct Site {
    /// The device that cannot be a PE.
    unfit: Option<u32>,
    /// The device that cannot use the memory of a PE.
    unable: Option<u32>,
    reports: Arc<Mutex<Vec<String>>>,
}

impl HeapSite for Site {
    type Route = Vec<(u32, Stream)>;
    type Device = u32;
    type Memory = (u32, View);
    type BindError = String;

    fn check(&self, device: &u32) -> Result<(), String> {
        if self.unfit == Some(*device) { Err(format!("device {device} is unfit")) } else { Ok(()) }
    }

    fn connect(&self, route: Self::Route, join: &mut Join<'_>) -> Result<(), HostError> {
        route.into_iter().try_for_each(|(member, stream)| Ok(join(member, stream)?))
    }

    fn bind(&self, device: &u32, view: View) -> Result<(u32, View), String> {
        if self.unable == Some(*device) {
            return Err(format!("device {device} has no memory left"));
        }
        Ok((*device, view))
    }

    fn report(&self, fault: &HostError) {
        self.reports.lock().unwrap().push(fault.to_string());
    }
}

type Host = HeapHost<u8, &'static str>;

fn host() -> Host {
    HeapHost::new(HostLimits { heaps: 2, threads: 4 })
}

/// Returns a callback and the receiver of what is passed to it.
fn answer<T: Send + 'static>() -> (impl Fn(T) + Clone + Send + 'static, Receiver<T>) {
    let (say, hear): (Sender<T>, _) = channel();
    (move |value| say.send(value).unwrap(), hear)
}

/// Makes a started heap of one member.
fn alone(host: &Host, id: u8) -> FormedHeap {
    let (formed, _) =
        host.form(&Site::default(), plan(&[0], 0), Vec::new(), &[(0, u32::from(id))]).unwrap();
    formed
}

#[test]
fn two_hosts_form_a_heap_and_bind_each_pe_to_its_device() {
    let (here, there) = stream_pair();
    let members = [0, 1, 0];
    let other = thread::spawn(move || {
        let host = host();
        let route = vec![(0, there)];
        let (formed, memory) =
            host.form(&Site::default(), plan(&members, 1), route, &[(1, 70)]).unwrap();
        assert_eq!((memory[0].0, memory[0].1.pe()), (70, 1));
        (host, formed)
    });
    let host = host();
    let (formed, memory) = host
        .form(&Site::default(), plan(&members, 0), vec![(1, here)], &[(0, 50), (2, 60)])
        .unwrap();
    let bound: Vec<_> = memory.iter().map(|(device, view)| (*device, view.pe())).collect();
    assert_eq!(bound, [(50, 0), (60, 2)]);
    let paths = formed.heap().own_paths().unwrap();
    assert_eq!((paths[0].from, paths[1].from), (0, 2));
    assert_eq!(paths[1].to, [Path::Own, Path::Shared, Path::Own]);
    // What the host writes into a part is where the device finds the part's user bytes.
    formed.heap().write(2, 8, &[7; 4]).unwrap();
    let (start, length) = memory[1].1.user_bytes().range();
    assert_eq!(length as u64, BYTES);
    // SAFETY: `length` bytes are mapped there as long as `memory` lives; nobody writes them now.
    let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), length) };
    assert_eq!(bytes[8..12], [7; 4]);
    let user = memory[1].1.user_range();
    assert_eq!(start.as_ptr() as usize - memory[1].1.range().0.as_ptr() as usize, {
        usize::try_from(user.start).unwrap()
    });
    drop(other.join().unwrap());
}

#[test]
fn a_failure_at_any_step_of_forming_is_reported_and_gives_the_heap_back() {
    let host = host();
    let form = |site: &Site, route, me| {
        let formed = host.form(site, plan(&[0, 1], me), route, &[(me, 50)]);
        (formed.unwrap_err(), std::mem::take(&mut *site.reports.lock().unwrap()))
    };
    let (error, reports) = form(&Site { unfit: Some(50), ..Site::default() }, Vec::new(), 0);
    assert!(matches!(&error, HostError::Device(why) if why == "device 50 is unfit"), "{error}");
    assert_eq!(reports, ["device 50 is unfit"]);
    let (error, reports) = form(&Site::default(), Vec::new(), 9);
    assert!(matches!(error, HostError::Heap(HeapError::NoOwnPe { me: 9 })), "{error}");
    assert_eq!(reports, ["member 9 holds no PE of the heap"]);
    let (here, there) = stream_pair();
    drop(there);
    let (error, reports) = form(&Site::default(), vec![(1, here)], 0);
    assert!(matches!(error, HostError::Heap(HeapError::Link(_))), "{error}");
    assert_eq!(reports.len(), 1);
    let site = Site { unable: Some(50), ..Site::default() };
    let error = host.form(&site, plan(&[0], 0), Vec::new(), &[(0, 50)]).unwrap_err();
    assert_eq!(error.to_string(), "device 50 has no memory left");
    // None of these heaps counts any more.
    let _both = [alone(&host, 1), alone(&host, 2)];
}

#[test]
fn a_host_has_no_more_heaps_than_it_allows_until_one_has_ended() {
    let host = host();
    host.add(1, alone(&host, 1), "one");
    host.add(2, alone(&host, 2), "two");
    assert_eq!(host.get(2).unwrap().extra(), &"two");
    let refused = host.create(plan(&[0], 0)).unwrap_err();
    assert_eq!(refused.to_string(), "the session has 2 heaps; release one first");
    assert!(host.release(1, Release::AfterLaunches));
    assert!(!host.release(1, Release::AfterLaunches), "it is released once");
    wait_for("the end of the heap", || host.create(plan(&[0], 0)).is_ok());
}

#[test]
fn a_released_heap_waits_for_its_launches_or_aborts_them() {
    for (release, reason) in
        [(Release::AfterLaunches, None), (Release::AbortLaunches("given up"), Some("given up"))]
    {
        let host = host();
        host.add(1, alone(&host, 1), "");
        let heap = Arc::downgrade(host.get(1).unwrap().heap());
        let launch = heap.upgrade().unwrap().running();
        // A launch that the release aborts keeps the heap, as in a rank. Otherwise the end of the
        // heap could come first, and it has a reason of its own.
        let kept = host.get(1).filter(|_| reason.is_some());
        host.release(1, release);
        if reason.is_none() {
            thread::sleep(Duration::from_millis(20));
            assert!(heap.upgrade().is_some(), "the heap waits for the launch");
        }
        assert_eq!(launch.end(None).as_deref().filter(|_| reason.is_some()), reason);
        drop(kept);
        wait_for("the end of the heap", || heap.upgrade().is_none());
    }
}

#[test]
fn a_reset_waits_for_launches_and_then_answers() {
    let host = host();
    host.add(1, alone(&host, 1), "");
    let heap = host.get(1).unwrap().heap().clone();
    let launch = heap.running();
    heap.abort("by hand");
    let (done, answered) = answer();
    host.reset(1, 1, done.clone());
    assert!(answered.recv_timeout(Duration::from_millis(20)).is_err(), "a launch is in flight");
    assert_eq!(launch.end(None).as_deref(), Some("by hand"));
    answered.recv_timeout(patience()).unwrap().unwrap();
    assert_eq!(heap.aborted(), None);
    host.reset(9, 1, done);
    assert!(matches!(answered.recv_timeout(patience()).unwrap(), Err(HostError::Unknown)));
}

#[test]
fn a_second_reset_is_refused_before_its_generation_is_checked() {
    let host = host();
    host.add(1, alone(&host, 1), "");
    let heap = host.get(1).unwrap().heap().clone();
    let launch = heap.running();
    let first = heap.clone();
    let first = thread::spawn(move || {
        loop {
            match first.reset_after_launches(1) {
                // The attempt below came in between.
                Err(HeapError::Changing) => {}
                reset => return reset,
            }
        }
    });
    wait_for("the first reset", || matches!(heap.reset(0), Err(HeapError::Changing)));
    assert_eq!(launch.end(None), None);
    first.join().unwrap().unwrap();
    assert!(matches!(heap.reset(1), Err(HeapError::Limit { given: 1, min: 2, .. })));
}

#[test]
fn a_failed_launch_aborts_the_heap() {
    let host = host();
    host.add(1, alone(&host, 1), "");
    let heap = host.get(1).unwrap().heap().clone();
    assert_eq!(heap.running().end(None), None);
    assert_eq!(heap.running().end(Some("it failed")).as_deref(), Some("it failed"));
    assert_eq!(heap.aborted().as_deref(), Some("it failed"));
}

#[test]
fn an_abort_is_news_once_until_the_heap_is_reset() {
    let host = host();
    host.add(1, alone(&host, 1), "one");
    let heap = host.get(1).unwrap().heap().clone();
    assert!(host.newly_aborted().is_empty());
    for generation in [1, 2] {
        heap.abort("by hand");
        let news = host.newly_aborted();
        assert_eq!(news.iter().map(|hosted| *hosted.extra()).collect::<Vec<_>>(), ["one"]);
        assert!(host.newly_aborted().is_empty(), "the same abort");
        heap.reset(generation).unwrap();
        assert!(host.newly_aborted().is_empty());
    }
}

#[test]
fn a_member_that_comes_joins_and_a_stranger_is_reported() {
    let host = host();
    host.add(1, host.create(plan(&[0, 1], 0)).unwrap(), "");
    let site = Site::default();
    let (here, there) = stream_pair();
    drop(there);
    host.arrive(site.clone(), 1, 1, here);
    wait_for("the report", || !site.reports.lock().unwrap().is_empty());
    host.arrive(site.clone(), 9, 1, stream_pair().0);
    assert_eq!(site.reports.lock().unwrap().len(), 1, "nobody is told of a heap that has gone");
    let (here, there) = stream_pair();
    host.arrive(site.clone(), 1, 1, here);
    let other = HeapHost::<u8, ()>::new(HostLimits::NONE);
    let (formed, _) =
        other.form(&Site::default(), plan(&[0, 1], 1), vec![(0, there)], &[(1, 0)]).unwrap();
    assert_eq!(host.get(1).unwrap().start().unwrap()[0].to, [Path::Own, Path::Shared]);
    host.end_all("the user has gone");
    wait_for("the note of it", || formed.heap().aborted().is_some());
    assert!(matches!(formed.heap().reset(1), Err(HeapError::Ended { .. })));
    host.finish(Release::AfterLaunches);
    assert!(host.get(1).is_none());
}

#[test]
fn no_more_threads_are_at_work_than_the_host_allows() {
    let host = host();
    let (go, stop) = channel::<()>();
    let stop = Arc::new(Mutex::new(stop));
    for _ in 0..4 {
        let stop = stop.clone();
        // The lock and the channel end when `go` is dropped.
        host.in_thread("waits", move || _ = stop.lock().unwrap().recv()).unwrap();
    }
    let refused = host.in_thread("waits", || ()).unwrap_err();
    assert!(matches!(refused, HostError::Busy { max: 4 }), "{refused}");
    drop(go);
    wait_for("a free thread", || host.in_thread("works", || ()).is_ok());
}

#[test]
fn members_that_meet_by_themselves_form_a_heap() {
    let meeting_plan = |me| MeetingPlan {
        heap: 5,
        me,
        hosts: vec!["here".into(), "here".into()],
        secret: [3; SECRET_BYTES],
        public_name: "localhost".into(),
        sockets: std::env::temp_dir(),
    };
    let (say, hear) = channel::<MeetingMessage>();
    let first = Meeting::open(meeting_plan(0)).unwrap();
    say.send(first.door()).unwrap();
    let heap = |me| host().create(plan(&[0, 1], me)).unwrap();
    let (one, other) = (heap(0), heap(1));
    let second = thread::spawn(move || {
        let meeting = Meeting::open(meeting_plan(1)).unwrap();
        meeting.meet(&hear, |member, stream| {
            other.heap().join(member, stream).map_err(HostError::from)
        })?;
        other.heap().start()?;
        Ok::<_, HostError>(other.heap().own_paths()?[0].to.clone())
    });
    let (_open, nothing) = channel();
    let join = |member, stream| one.heap().join(member, stream).map_err(HostError::from);
    first.meet(&nothing, join).unwrap();
    one.heap().start().unwrap();
    assert_eq!(second.join().unwrap().unwrap(), [Path::Shared, Path::Own]);
}
