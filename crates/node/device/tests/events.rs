//! Tests of events on a real driver: how they end, their callbacks, and commands behind a failure.

pub mod common;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use common::*;
use penstock_device::{Event, Mem, Queue, Staged, Status, Want};
use penstock_trial::{Need, skip, wait_for};

#[test]
fn callbacks_come_once_with_times() {
    let Some((context, queue)) = first(PROFILING) else { return };
    let mem = Mem::buffer(&context, READ_WRITE, 1 << 20).unwrap();
    let told = Arc::new(AtomicU32::new(0));
    let events: Vec<Event> = (0..100)
        .map(|index| {
            let event = queue.fill(&mem, &[index], 0, 1 << 16, &[], Want::Event).unwrap().unwrap();
            let told = told.clone();
            event.on_complete(Box::new(move |status, times| {
                assert_eq!(status, Status::OK);
                assert!(
                    times.queued > 0
                        && times.queued <= times.submitted
                        && times.started <= times.ended
                );
                assert!(times.completed >= times.ended);
                told.fetch_add(1, Ordering::Relaxed);
            }));
            event
        })
        .collect();
    queue.finish().unwrap();
    wait_for("the last callback", || told.load(Ordering::Relaxed) >= 100);
    // Callbacks that are set after the end run as well.
    for event in &events {
        assert_eq!(completion(event).recv_timeout(patience()).unwrap().0, Status::OK);
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(told.load(Ordering::Relaxed), 100);
}

#[test]
fn a_queue_without_profiling_has_no_times() {
    let Some((_context, queue)) = first(0) else { return };
    let event = queue.marker(&[], Want::Event).unwrap().unwrap();
    queue.flush().unwrap();
    let (status, times) = completion(&event).recv_timeout(patience()).unwrap();
    assert_eq!((status, times), (Status::OK, Default::default()));
}

#[test]
fn a_panic_in_a_callback_stays_there() {
    let Some((_context, queue)) = first(0) else { return };
    let event = queue.marker(&[], Want::Event).unwrap().unwrap();
    event.on_complete(Box::new(|_, _| panic!("on purpose")));
    queue.finish().unwrap();
    let event = queue.marker(&[], Want::Event).unwrap().unwrap();
    queue.flush().unwrap();
    assert_eq!(completion(&event).recv_timeout(patience()).unwrap().0, Status::OK);
}

#[test]
fn user_events_hold_commands_back() {
    for properties in [0, OUT_OF_ORDER] {
        let Some((context, queue)) = first_that_waits(properties) else { return };
        let mem = Mem::buffer(&context, READ_WRITE, 4).unwrap();
        let gate = Event::user(&context).unwrap();
        let written =
            queue.write(&mem, 0, staged(&[1, 2, 3, 4]), &[&gate], Want::Event).unwrap().unwrap();
        let told = completion(&written);
        queue.flush().unwrap();
        assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
        assert!(written.status().0 > 0);
        gate.complete(Status::OK).unwrap();
        assert_eq!(told.recv_timeout(patience()).unwrap().0, Status::OK);
        assert_eq!(read_all(&queue, &mem), [1, 2, 3, 4]);
        assert!(gate.complete(Status::OK).is_err(), "the event is already set");
    }
}

/// A migration moves nothing on these devices, but its event must not end before a barrier, or
/// before all earlier commands if nothing makes it wait for them.
#[test]
fn a_migration_waits_for_the_barrier_before_it_only() {
    for properties in [OUT_OF_ORDER, OUT_OF_ORDER | PROFILING] {
        let Some((context, queue)) = first_that_waits(properties) else { return };
        let mem = Mem::buffer(&context, READ_WRITE, 4).unwrap();
        let gate = Event::user(&context).unwrap();
        let held = queue.write(&mem, 0, staged(&[1, 2, 3, 4]), &[&gate], Want::Event);
        let held = held.unwrap().unwrap();
        let free = queue.migrate(&[&mem], 0, &[], Want::Event).unwrap().unwrap();
        queue.flush().unwrap();
        let (status, _) = completion(&free).recv_timeout(patience()).unwrap();
        assert_eq!(status, Status::OK, "nothing makes it wait");
        queue.barrier(&[], Want::Nothing).unwrap();
        let behind = queue.migrate(&[&mem], 0, &[], Want::Event).unwrap().unwrap();
        let told = completion(&behind);
        queue.flush().unwrap();
        assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
        assert!(behind.status().0 > 0 && held.status().0 > 0);
        gate.complete(Status::OK).unwrap();
        assert_eq!(told.recv_timeout(patience()).unwrap().0, Status::OK);
        assert_eq!(held.status(), Status::OK);
    }
}

/// A command of the queue that a migration or marker does not wait for may take long, and may fail.
#[test]
fn what_does_nothing_waits_for_its_wait_list_only() {
    type Enqueue = fn(&Queue, &Mem, &[&Event]) -> Event;
    let migrate: Enqueue =
        |queue, mem, waits| queue.migrate(&[mem], 0, waits, Want::Event).unwrap().unwrap();
    let mark: Enqueue = |queue, _, waits| queue.marker(waits, Want::Event).unwrap().unwrap();
    for enqueue in [migrate, mark] {
        waits_for_its_wait_list_only(enqueue);
    }
}

fn waits_for_its_wait_list_only(enqueue: fn(&Queue, &Mem, &[&Event]) -> Event) {
    for properties in [OUT_OF_ORDER, OUT_OF_ORDER | PROFILING] {
        let Some((context, queue)) = first_that_waits(properties) else { return };
        let mem = Mem::buffer(&context, READ_WRITE, 4).unwrap();
        let [gate, own] = [(); 2].map(|()| Event::user(&context).unwrap());
        let held = queue.write(&mem, 0, staged(&[1, 2, 3, 4]), &[&gate], Want::Event);
        let held = held.unwrap().unwrap();
        let passed = enqueue(&queue, &mem, &[&own]);
        let told = completion(&passed);
        queue.flush().unwrap();
        assert!(told.recv_timeout(Duration::from_millis(50)).is_err(), "it has a wait list");
        own.complete(Status::OK).unwrap();
        assert_eq!(told.recv_timeout(patience()).unwrap().0, Status::OK);
        assert!(held.status().0 > 0, "nothing makes it wait for the other command");
        let (behind, behind_too) = (Event::user(&context).unwrap(), completion(&held));
        let fails = enqueue(&queue, &mem, &[&held, &behind]);
        let spared = enqueue(&queue, &mem, &[&behind]);
        let [fails, spared] = [fails, spared].map(|event| completion(&event));
        gate.complete(Status(-5)).unwrap();
        assert_eq!(behind_too.recv_timeout(patience()).unwrap().0, Status::WAIT_LIST_FAILED);
        behind.complete(Status::OK).unwrap();
        assert_eq!(fails.recv_timeout(patience()).unwrap().0, Status::WAIT_LIST_FAILED);
        assert_eq!(spared.recv_timeout(patience()).unwrap().0, Status::OK);
    }
}

#[test]
fn what_waits_for_a_failure_fails_with_the_code_of_the_specification() {
    for properties in [0, PROFILING, OUT_OF_ORDER] {
        let Some((context, queue)) = first_that_waits(properties) else { return };
        let other = Queue::new(&context, queue.device(), properties, 0).unwrap();
        let mem = Mem::buffer(&context, READ_WRITE, 1 << 20).unwrap();
        let gate = Event::user(&context).unwrap();
        let first = queue.write(&mem, 0, staged(&[1; 64]), &[&gate], Want::Event).unwrap().unwrap();
        let second = other.read(&mem, 0, 64, &[&first]).unwrap();
        let large =
            other.write(&mem, 0, Staged::new(1 << 20).unwrap(), &[second.event()], Want::Event);
        let large = large.unwrap().unwrap();
        let (tell, told) = mpsc::channel();
        let tell_too = tell.clone();
        first.on_complete(Box::new(move |status, _| tell.send(status).unwrap()));
        second.on_complete(Box::new(move |status, _, _| tell_too.send(status).unwrap()));
        let large_told = completion(&large);
        let gate_told = completion(&gate);
        queue.flush().unwrap();
        other.flush().unwrap();
        gate.complete(Status(-5)).unwrap();
        assert_eq!(gate_told.recv_timeout(patience()).unwrap().0, Status(-5));
        for _ in 0..2 {
            assert_eq!(told.recv_timeout(patience()).unwrap(), Status::WAIT_LIST_FAILED);
        }
        assert_eq!(large_told.recv_timeout(patience()).unwrap().0, Status::WAIT_LIST_FAILED);
        assert_eq!(first.status(), Status::WAIT_LIST_FAILED);
        // Later queries return the same status.
        assert_eq!(
            completion(&first).recv_timeout(patience()).unwrap().0,
            Status::WAIT_LIST_FAILED
        );
        assert_eq!(first.wait(), Err(Status::WAIT_LIST_FAILED));
        // Neither a command behind the failed event nor those behind that command hang.
        let behind = queue.write(&mem, 0, staged(&[2; 64]), &[&gate], Want::Event);
        assert_eq!(behind, Err(Status::WAIT_LIST_FAILED));
        assert_eq!(queue.marker(&[&first], Want::Nothing), Err(Status::WAIT_LIST_FAILED));
        queue.write(&mem, 0, staged(&[3; 64]), &[], Want::Nothing).unwrap();
        queue.finish().unwrap();
        other.finish().unwrap();
        assert_eq!(read_all(&queue, &mem)[..64], [3; 64]);
        assert!(told.try_recv().is_err());
    }
}

#[test]
fn failures_from_many_threads_while_others_enqueue() {
    let Some((context, queue)) = first_that_waits(OUT_OF_ORDER) else { return };
    let mem = Mem::buffer(&context, READ_WRITE, 4096).unwrap();
    let (tell, told) = mpsc::channel();
    let mut expected = 0;
    for round in 0..200_u8 {
        let gate = Event::user(&context).unwrap();
        let failing = gate.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(u64::from(round) % 50));
            failing.complete(Status(-9)).unwrap();
        });
        for _ in 0..20 {
            match queue.write(&mem, 0, staged(&[round; 64]), &[&gate], Want::Event) {
                Ok(event) => {
                    let tell = tell.clone();
                    event
                        .unwrap()
                        .on_complete(Box::new(move |status, _| tell.send(status).unwrap()));
                    expected += 1;
                }
                Err(status) => assert_eq!(status, Status::WAIT_LIST_FAILED),
            }
        }
        queue.flush().unwrap();
        thread.join().unwrap();
    }
    for _ in 0..expected {
        assert_eq!(told.recv_timeout(patience()).unwrap(), Status::WAIT_LIST_FAILED);
    }
    queue.finish().unwrap();
}

#[test]
fn a_callback_may_use_the_queue_and_end_user_events() {
    let Some((context, queue)) = first_that_waits(0) else { return };
    let mem = Mem::buffer(&context, READ_WRITE, 64).unwrap();
    for outcome in [Status::OK, Status(-7)] {
        let gate = Event::user(&context).unwrap();
        let second = Queue::new(&context, queue.device(), 0, 0).unwrap();
        let behind = second.marker(&[&gate], Want::Event).unwrap().unwrap();
        let told = completion(&behind);
        let trigger = queue.write(&mem, 0, staged(&[1; 64]), &[], Want::Event).unwrap().unwrap();
        let (callback_queue, callback_mem) = (queue.clone(), mem.clone());
        trigger.on_complete(Box::new(move |_, _| {
            callback_queue.write(&callback_mem, 0, staged(&[2; 64]), &[], Want::Nothing).unwrap();
            callback_queue.flush().unwrap();
            gate.complete(outcome).unwrap();
        }));
        queue.flush().unwrap();
        second.flush().unwrap();
        let expected = if outcome == Status::OK { Status::OK } else { Status::WAIT_LIST_FAILED };
        assert_eq!(told.recv_timeout(patience()).unwrap().0, expected);
    }
}

#[test]
fn events_of_another_context_are_refused() {
    let (Some((context, _)), Some((_other, queue))) = (first(0), first(0)) else { return };
    let gate = Event::user(&context).unwrap();
    assert_eq!(queue.marker(&[&gate], Want::Event), Err(Status::INVALID_CONTEXT));
    let mem = Mem::buffer(&context, READ_WRITE, 64).unwrap();
    assert!(queue.read(&mem, 0, 64, &[]).is_err());
}

#[test]
fn staged_bytes_are_freed() {
    for properties in [0, OUT_OF_ORDER] {
        let Some((context, queue)) = first(properties) else { return };
        let mem = Mem::buffer(&context, READ_WRITE, 1 << 20).unwrap();
        for size in [64, 1 << 10, 8 << 10, 1 << 20] {
            for round in 0..300 {
                let bytes = vec![u8::try_from(round % 251).unwrap(); size];
                queue.write(&mem, 0, Staged::from(bytes), &[], Want::Nothing).unwrap();
            }
            queue.finish().unwrap();
            queue.reclaim();
            if properties == 0 {
                assert!(read_all(&queue, &mem)[..size].iter().all(|&byte| byte == 48));
            }
        }
    }
    // Other tests stage bytes too, but none holds much for long.
    wait_for("the end of staged bytes", || Staged::held() <= 4 << 20);
}

#[test]
fn a_queue_that_goes_away_keeps_the_bytes_of_its_writes() {
    let Some((context, queue)) = first_that_waits(0) else { return };
    let mem = Mem::buffer(&context, READ_WRITE, 1 << 16).unwrap();
    let gate = Event::user(&context).unwrap();
    queue.marker(&[&gate], Want::Nothing).unwrap();
    for index in 0..64_u8 {
        queue.write(&mem, u64::from(index) * 64, staged(&[index; 64]), &[], Want::Nothing).unwrap();
    }
    queue.write(&mem, 8192, staged(&[77; 4096]), &[], Want::Nothing).unwrap();
    let last = queue.marker(&[], Want::Event).unwrap().unwrap();
    drop(queue);
    gate.complete(Status::OK).unwrap();
    assert_eq!(completion(&last).recv_timeout(patience()).unwrap().0, Status::OK);
    let queue = Queue::new(&context, &context.devices()[0], 0, 0).unwrap();
    let content = read_all(&queue, &mem);
    assert!((0..4096).all(|place| usize::from(content[place]) == place / 64));
    assert!(content[8192..12288].iter().all(|&byte| byte == 77));
}

#[test]
fn a_device_that_must_not_wait_gets_an_error_and_no_hang() {
    let Some((context, queue)) = first(0) else { return };
    if !queue.device().must_not_wait() {
        let name = queue.device().name();
        return skip(Need::Ability, format_args!("commands may wait on {name}"));
    }
    let gate = Event::user(&context).unwrap();
    assert_eq!(queue.marker(&[&gate], Want::Event), Err(Status::OUT_OF_RESOURCES));
    let ending = gate.clone();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        ending.complete(Status::OK).unwrap();
    });
    let event = queue.marker(&[&gate], Want::Event).unwrap().unwrap();
    assert_eq!(event.wait(), Ok(()));
    thread.join().unwrap();
}

/// Fails commands without known events behind a user event, some before their wait lists end.
#[test]
fn a_failure_reaches_commands_whose_events_nobody_has() {
    let Some((context, queue)) = first_that_waits(0) else { return };
    let mem = Mem::buffer(&context, READ_WRITE, 4096).unwrap();
    for _ in 0..100 {
        let (gate, later) = (Event::user(&context).unwrap(), Event::user(&context).unwrap());
        let first = queue.fill(&mem, &[1], 0, 64, &[&gate], Want::Event).unwrap().unwrap();
        for _ in 0..10 {
            queue.fill(&mem, &[2], 0, 64, &[&first], Want::Nothing).unwrap();
            drop(queue.fill(&mem, &[3], 0, 64, &[&first, &later], Want::Event).unwrap());
        }
        drop(first);
        queue.flush().unwrap();
        gate.complete(Status(-5)).unwrap();
        later.complete(Status(-5)).unwrap();
    }
}
