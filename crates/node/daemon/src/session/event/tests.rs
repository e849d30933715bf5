//! Tests of events without a session.

use std::sync::mpsc;

use super::*;

const PEER: Id<kind::Peer> = Id::new(9);
const OTHER_PEER: Id<kind::Peer> = Id::new(8);

fn id(raw: u64) -> Id<kind::Event> {
    Id::new(raw)
}

/// Registers an event whose end the client will tell.
fn expect(events: &Events, raw: u64) -> Arc<Event> {
    events.expect(id(raw), Id::NONE).unwrap()
}

#[test]
fn an_end_told_before_it_is_expected_is_kept() {
    let events = Events::default();
    events.told_by(PEER, id(5), Status(-7)).unwrap();
    assert_eq!(events.expect(id(5), PEER).unwrap().ended(), Some(Status(-7)));
    events.release(id(5));
    assert!(events.get(id(5)).is_none());
}

#[test]
fn only_the_peer_that_the_client_names_tells_an_end() {
    let events = Events::default();
    // Told too early, by a peer that the client does not name later.
    events.told_by(OTHER_PEER, id(1), Status::OK).unwrap();
    let event = events.expect(id(1), PEER).unwrap();
    assert_eq!(event.ended(), None);
    assert!(events.told_by(OTHER_PEER, id(1), Status::OK).is_err());
    assert_eq!(event.ended(), None);
    events.told_by(PEER, id(1), Status(-5)).unwrap();
    assert_eq!(event.ended(), Some(Status(-5)));
    // A peer cannot tell the end of an event that the client tells.
    let event = expect(&events, 2);
    assert!(events.told_by(PEER, id(2), Status::OK).is_err());
    assert_eq!(event.ended(), None);
    // An end that was told too early does not occupy the id.
    events.told_by(PEER, id(3), Status::OK).unwrap();
    assert!(events.announce(id(3)).is_ok_and(|event| event.is_some_and(|it| it.ended().is_none())));
}

#[test]
fn an_expected_event_is_found_although_released() {
    let events = Events::default();
    let (told, heard) = mpsc::channel();
    expect(&events, 1).follow(move |status| told.send(status).unwrap());
    events.release(id(1));
    events.resolve(id(1), Status::OK).unwrap();
    assert_eq!(heard.recv(), Ok(Status::OK));
    assert!(events.get(id(1)).is_none());
}

#[test]
fn when_all_waits_for_all_and_tells_a_failure() {
    let events = Events::default();
    for raw in 1..=3 {
        expect(&events, raw);
    }
    let (told, heard) = mpsc::channel();
    events.when_all(&[id(1), id(2), id(3)], move |ended| told.send(ended).unwrap());
    events.resolve(id(1), Status::OK).unwrap();
    events.resolve(id(3), Status(-5)).unwrap();
    assert!(heard.try_recv().is_err());
    events.resolve(id(2), Status::OK).unwrap();
    assert_eq!(heard.recv(), Ok(Err(Status::WAIT_LIST_FAILED)));
    let (told, heard) = mpsc::channel();
    events.when_all(&[], move |ended| told.send(ended).unwrap());
    assert_eq!(heard.recv(), Ok(Ok(())));
}

#[test]
fn an_entry_that_only_asks_for_the_end_does_not_hand_on_the_failure() {
    let events = Events::default();
    for raw in 1..=2 {
        expect(&events, raw);
    }
    let (told, heard) = mpsc::channel();
    events.when_all(&[id(1).however_it_ends(), id(2)], move |ended| told.send(ended).unwrap());
    let command = Event::new(id(3), true);
    events.note_waits(&command, &[id(1).however_it_ends(), id(2)]);
    let noted: Vec<_> = command.links.lock().waits.iter().map(|event| event.id()).collect();
    assert_eq!(noted, [id(2)], "when_known fails a command with the noted events");
    events.resolve(id(1), Status(-5)).unwrap();
    assert!(heard.try_recv().is_err());
    events.resolve(id(2), Status::OK).unwrap();
    assert_eq!(heard.recv(), Ok(Ok(())));
}

#[test]
fn a_long_chain_of_ends_needs_no_long_stack() {
    let events = Arc::new(Events::default());
    let last = 100_000;
    for raw in 1..=last {
        let (next, event) = (events.clone(), expect(&events, raw));
        event.follow(move |status| next.resolve(id(raw + 1), status).unwrap());
    }
    events.resolve(id(1), Status(-3)).unwrap();
    assert_eq!(events.get(id(last + 1)).unwrap().ended(), Some(Status(-3)));
}

#[test]
fn only_what_the_client_tells_is_awaited_from_it() {
    let events = Events::default();
    assert!(!events.awaits_client());
    events.announce(id(1)).unwrap();
    events.expect(id(2), PEER).unwrap();
    assert!(!events.awaits_client());
    expect(&events, 3);
    assert!(events.awaits_client());
    events.resolve(id(3), Status::OK).unwrap();
    assert!(!events.awaits_client());
}

#[test]
fn ids_of_events_are_used_once() {
    let events = Events::default();
    events.announce(id(1)).unwrap();
    assert!(events.announce(id(1)).is_err());
    assert!(events.announce(Id::NONE).unwrap().is_none());
    assert!(events.resolve(id(1), Status::OK).is_err(), "only its own command ends it");
}
