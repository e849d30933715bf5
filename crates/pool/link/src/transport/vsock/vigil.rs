//! Decides whether the other end of a connection still lives. Has no I/O and no clock, and serves
//! both kinds of vsock.
//!
//! There is a sign of life beside the bytes of the connection: the kernel of the other machine
//! refuses a connection to a port on which nobody listens. It does so even if the programs there
//! are busy or stopped. This side asks for it after some time of silence. The machine has vanished
//! if no answer comes in time.
//!
//! Some monitors never refuse a connection, for example `vhost-device-vsock` 0.3.0. So the first
//! question comes early, while the machine is known to live. If the machine leaves this question
//! unanswered, its silence means nothing. It is asked again now and then: perhaps it was only busy,
//! and without answers nobody would notice that it is paused later.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Silence after which the other machine is asked for a sign of life.
pub(super) const QUIET_MAX: Duration = Duration::from_secs(3);

/// Time that the other machine has for its answer. TCP, too, gives an idle peer 3 s. With the
/// silence before it and the interval between two looks, a loss is known after at most 8 s.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(3);

/// Time after which a machine is asked again that has left a question unanswered.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Vigil {
    /// When the other end last gave a sign of life, or this side last doubted its life.
    quiet_since: Instant,
    /// When the question was asked to which the answer has not come.
    asked: Option<Instant>,
    refusals: Refusals,
}

/// Whether the machine refuses connections to the port of nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusals {
    NotAsked,
    Come,
    /// They do not come, as far as is known.
    DoNotCome {
        /// Time at which this became known.
        since: Instant,
    },
}

/// Answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The machine has refused or accepted the connection.
    Lives,
    /// Nothing came in time.
    Silent,
    /// This machine's kernel knows that the other one is gone.
    Gone,
    /// Nobody could ask, for example because descriptors are lacking.
    Unclear,
}

/// What a look has found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signs {
    /// Whether bytes have come since the last look.
    pub(super) heard: bool,
    /// Answer that has come to the last question.
    pub(super) answer: Option<Answer>,
}

/// What follows from a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Deeds {
    /// The other end is gone.
    pub(super) is_lost: bool,
    /// Poke the connection, so that a machine that was started anew resets it.
    pub(super) poke: bool,
    /// Ask the other machine for a sign of life. There is at most one open question.
    pub(super) ask: bool,
}

impl Vigil {
    /// Begins with the connection.
    pub(super) fn new(now: Instant) -> Self {
        Self { quiet_since: now, asked: None, refusals: Refusals::NotAsked }
    }

    /// Returns whether this side has asked and waits for an answer.
    pub(super) fn is_asking(&self) -> bool {
        self.asked.is_some()
    }

    /// Takes the signs that have come until now.
    pub(super) fn look(&mut self, now: Instant, signs: Signs) -> Deeds {
        if signs.heard {
            self.quiet_since = now;
        }
        if let Some(asked) = self.asked {
            let late = now.duration_since(asked) >= ANSWER_MAX;
            let Some(answer) = signs.answer.or(late.then_some(Answer::Silent)) else {
                return Deeds::default();
            };
            self.asked = None;
            let has_spoken = self.quiet_since > asked;
            return Deeds { is_lost: self.take(answer, has_spoken, now), ..Deeds::default() };
        }
        let is_quiet = now.duration_since(self.quiet_since) >= QUIET_MAX;
        if is_quiet {
            // The next poke comes after the same time.
            self.quiet_since = now;
        }
        let ask = match self.refusals {
            Refusals::NotAsked => true,
            Refusals::Come => is_quiet,
            Refusals::DoNotCome { since } => now.duration_since(since) >= ASK_AGAIN,
        };
        self.asked = ask.then_some(now);
        Deeds { is_lost: false, poke: is_quiet, ask }
    }

    /// Takes the reason why the question of the last look could not be asked. Returns whether the
    /// other end is gone.
    pub(super) fn could_not_ask(&mut self, why: Answer, now: Instant) -> bool {
        self.asked = None;
        self.take(why, false, now)
    }

    /// Takes an answer. Returns whether the other end is gone. `has_spoken` says that bytes came
    /// after the question.
    fn take(&mut self, answer: Answer, has_spoken: bool, now: Instant) -> bool {
        match answer {
            Answer::Gone => return true,
            Answer::Silent if self.refusals == Refusals::Come => return !has_spoken,
            Answer::Silent => self.refusals = Refusals::DoNotCome { since: now },
            Answer::Lives => {
                self.refusals = Refusals::Come;
                self.quiet_since = now;
            }
            Answer::Unclear => {}
        }
        false
    }
}

#[cfg(test)]
mod tests;
