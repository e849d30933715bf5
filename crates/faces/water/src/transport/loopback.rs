//! Ranks that are threads of one process. Tests of the code above the transport get real
//! concurrency without set-up.

use std::collections::VecDeque;
use std::sync::Arc;

use penstock_process::Lock;
use rustc_hash::FxHashMap;

use super::{Span, Token, Transport, TransportEvent};
use crate::command::{Rank, Stream};
use crate::doorbell::Doorbell;

#[derive(Debug)]
pub struct Loopback {
    rank: Rank,
    hub: Arc<Hub>,
}

#[derive(Debug)]
struct Hub {
    ranks: Vec<Lock<Mailbox>>,
}

#[derive(Debug, Default)]
struct Mailbox {
    bell: Option<Doorbell>,
    events: VecDeque<TransportEvent>,
    /// Pieces that wait for their receivers, and receivers that wait for their pieces.
    sent: FxHashMap<(Rank, Stream), VecDeque<(Span, Token)>>,
    wanted: FxHashMap<(Rank, Stream), VecDeque<(Span, Token)>>,
    gone: bool,
}

impl Loopback {
    /// Creates the transports of `count` ranks.
    pub fn ranks(count: u32) -> Vec<Self> {
        let hub = Arc::new(Hub { ranks: (0..count).map(|_| Lock::default()).collect() });
        (0..count).map(|rank| Self { rank, hub: Arc::clone(&hub) }).collect()
    }

    fn with<R>(&self, rank: Rank, work: impl FnOnce(&mut Mailbox) -> R) -> Option<R> {
        let mut mailbox = self.hub.ranks.get(rank as usize)?.lock();
        Some(work(&mut mailbox))
    }

    /// Drops what the two ranks wait for from each other, so that neither uses the other's memory
    /// any more.
    fn part(&self, at: Rank, from: Rank) {
        self.with(at, |mailbox| {
            mailbox.sent.retain(|(sender, _), _| *sender != from);
            mailbox.wanted.retain(|(sender, _), _| *sender != from);
        });
    }

    fn notify(&self, rank: Rank, event: TransportEvent) {
        self.with(rank, |mailbox| {
            mailbox.events.push_back(event);
            if let Some(bell) = &mailbox.bell {
                bell.ring();
            }
        });
    }
}

/// Copies a piece, and returns its length.
fn hand_over(piece: Span, place: Span) -> usize {
    let length = piece.length.min(place.length);
    // SAFETY: the sender keeps its bytes, and the receiver its room, until they are told. They are
    // told after this.
    unsafe { std::ptr::copy(piece.start, place.start, length) };
    length
}

impl Transport for Loopback {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        u32::try_from(self.hub.ranks.len()).unwrap_or(u32::MAX)
    }

    fn control(&mut self, to: Rank, bytes: Vec<u8>) {
        self.notify(to, TransportEvent::Control(self.rank, bytes));
    }

    unsafe fn send(&mut self, to: Rank, stream: Stream, span: Span, token: Token) {
        let key = (self.rank, stream);
        let met = self.with(to, |mailbox| {
            if mailbox.gone {
                return None;
            }
            let receiver = mailbox.wanted.get_mut(&key).and_then(VecDeque::pop_front);
            match receiver {
                Some((place, waiting)) => {
                    let length = hand_over(span, place);
                    mailbox.events.push_back(TransportEvent::Received(waiting, length));
                    if let Some(bell) = &mailbox.bell {
                        bell.ring();
                    }
                    Some(())
                }
                None => {
                    mailbox.sent.entry(key).or_default().push_back((span, token));
                    None
                }
            }
        });
        if met.flatten().is_some() {
            self.notify(self.rank, TransportEvent::Sent(token));
        }
    }

    unsafe fn receive(&mut self, from: Rank, stream: Stream, span: Span, token: Token) {
        let key = (from, stream);
        let met = self.with(self.rank, |mailbox| {
            let piece = mailbox.sent.get_mut(&key).and_then(VecDeque::pop_front);
            match piece {
                Some((bytes, sender)) => {
                    let length = hand_over(bytes, span);
                    mailbox.events.push_back(TransportEvent::Received(token, length));
                    Some(sender)
                }
                None => {
                    mailbox.wanted.entry(key).or_default().push_back((span, token));
                    None
                }
            }
        });
        if let Some(sender) = met.flatten() {
            self.notify(from, TransportEvent::Sent(sender));
        }
    }

    fn poll(&mut self, events: &mut Vec<TransportEvent>) {
        self.with(self.rank, |mailbox| events.extend(mailbox.events.drain(..)));
    }

    fn give_up(&mut self, rank: Rank, reason: &str) {
        self.part(self.rank, rank);
        self.part(rank, self.rank);
        self.notify(self.rank, TransportEvent::Lost(rank, reason.to_owned()));
    }

    fn needs_polling(&self) -> bool {
        false
    }

    fn wake_with(&mut self, wake: Doorbell) {
        self.with(self.rank, |mailbox| mailbox.bell = Some(wake));
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.with(self.rank, |mailbox| {
            mailbox.gone = true;
            mailbox.sent.clear();
            mailbox.wanted.clear();
        });
        for rank in 0..self.size() {
            if rank != self.rank {
                // Pieces to and from this rank are dropped.
                self.part(rank, self.rank);
                self.notify(rank, TransportEvent::Lost(self.rank, "its thread has ended".into()));
            }
        }
    }
}
