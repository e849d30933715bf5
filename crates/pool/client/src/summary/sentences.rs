//! What bounded a run: a pure function over its figures. A sentence says only what the figures
//! prove.

use std::time::Duration;

use super::figures::{Counts, Figures};
use super::kinds::{Command, Reason};
use super::number::{bytes, number, time};

/// A reason bounds the run if it takes at least this share of the run, as a divisor. With more than
/// three other parts of this size none of them would be worth a sentence.
const SHARE: u32 = 4;

/// Most reasons that are named. More than two do not bound a run.
const REASONS_MAX: usize = 2;

/// Largest average read that is small. Over a network of 10 Gbit/s, 64 KiB take about as long as a
/// round trip, so that half of the time is the trip.
const SMALL_READ_BYTES_MAX: u64 = 64 << 10;

/// Fewest waits of which advice to make fewer is worth its line.
const MANY_WAITS_MIN: u64 = 100;

/// Returns one to three lines on what bounded the run.
pub(super) fn of(figures: &Figures) -> Vec<String> {
    let total = figures.total();
    let (ran, waited) = (figures.ran, total.waited());
    // Waits of several threads may be at the same time, so their sum says nothing of the rest.
    let is_one = figures.threads <= 1;
    let is_bound = waited * SHARE >= ran;
    let of_run = format!("The program waited for the pool in {} of {}", time(waited), time(ran));
    let rest = time(ran.saturating_sub(waited));
    let mut sentences = vec![match (is_one, is_bound) {
        (true, true) => format!("{of_run}."),
        (true, false) => {
            format!("{of_run}: the other {rest} were its own work and the making of its calls.")
        }
        (false, _) => format!(
            "{} threads of the program waited for the pool, {} in total, in a run of {}.",
            number(figures.threads),
            time(waited),
            time(ran)
        ),
    }];
    if is_bound {
        let whole = if is_one { ran } else { waited };
        sentences.extend(longest(&total, whole).map(|reason| about(reason, &total)));
    }
    sentences
}

/// Returns the reasons that take a large share of `whole`, the longest first.
fn longest(total: &Counts, whole: Duration) -> impl Iterator<Item = Reason> {
    let is_large = |reason: &Reason| total.wait(*reason).time() * SHARE >= whole;
    let mut reasons: Vec<_> = Reason::ALL.iter().copied().filter(is_large).collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(total.wait(*reason).sum));
    reasons.into_iter().take(REASONS_MAX)
}

fn about(reason: Reason, total: &Counts) -> String {
    let wait = total.wait(reason);
    let (took, each) = (time(wait.time()), time(Duration::from_nanos(wait.average())));
    let words = match reason {
        Reason::Read if wait.count > 1 && total.command(Command::Map).count == 0 => {
            "blocking reads"
        }
        _ => reason.words(wait.count),
    };
    let told = format!("{} {words} took {took}", number(wait.count));
    let is_often = wait.count >= MANY_WAITS_MIN;
    match reason {
        Reason::Read => match small_reads(total).filter(|_| is_often) {
            Some(size) => format!(
                "{told}, and a read has {} on average: read more at once, or without blocking.",
                bytes(size)
            ),
            None => format!("{told}. A read can also wait for the commands before it."),
        },
        // Fewer than two launches for each wait.
        Reason::Finish if is_often && total.command(Command::Launch).count < wait.count * 2 => {
            format!("{told}, {each} on average: launch more before each wait.")
        }
        Reason::Finish | Reason::Event => format!("{told}, {each} on average."),
        Reason::Build => format!(
            "{told}. Over a Unix socket, the next run finds what the driver has kept; over TCP \
             each run begins without."
        ),
        Reason::Room => {
            format!("{told}: a node had not yet taken what was sent before.")
        }
        Reason::Open => format!("The opening of the pool took {took}."),
        Reason::Write | Reason::Reply => format!("{told}."),
    }
}

/// Returns the average bytes of a read if reads are small, and if most of them cannot have waited
/// for a command of their own: there are more waits than twice the commands that take time.
fn small_reads(total: &Counts) -> Option<u64> {
    let work = [Command::Launch, Command::Copy, Command::Fill, Command::Library, Command::Map];
    let work: u64 = work.iter().map(|command| total.command(*command).count).sum();
    let size = total.command(Command::Read).average();
    (size <= SMALL_READ_BYTES_MAX && total.wait(Reason::Read).count > 2 * work).then_some(size)
}
