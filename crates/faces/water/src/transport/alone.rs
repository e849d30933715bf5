//! The transport of a run with a single rank.

use super::{Span, Token, Transport, TransportEvent};
use crate::command::{Rank, Stream};
use crate::doorbell::Doorbell;

#[derive(Debug, Default)]
pub struct Alone;

impl Transport for Alone {
    fn rank(&self) -> Rank {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn control(&mut self, to: Rank, _: Vec<u8>) {
        debug_assert!(false, "there is no rank {to}");
    }

    unsafe fn send(&mut self, to: Rank, _: Stream, _: Span, _: Token) {
        debug_assert!(false, "there is no rank {to}");
    }

    unsafe fn receive(&mut self, from: Rank, _: Stream, _: Span, _: Token) {
        debug_assert!(false, "there is no rank {from}");
    }

    fn poll(&mut self, _: &mut Vec<TransportEvent>) {}

    fn give_up(&mut self, rank: Rank, _: &str) {
        debug_assert!(false, "there is no rank {rank}");
    }

    fn needs_polling(&self) -> bool {
        false
    }

    fn wake_with(&mut self, _: Doorbell) {}
}
