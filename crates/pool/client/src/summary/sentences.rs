//! What bounded a run: a pure function over its figures. A sentence says only what the figures
//! prove.

use std::time::Duration;

use super::figures::{Amount, Counts, Figures};
use super::kinds::Reason;
use super::number::{number, time};

/// A reason bounds the run if it takes at least this share of the run, as a divisor. With more than
/// three other parts of this size none of them would be worth a sentence.
const SHARE: u32 = 4;

/// Most reasons that are named. More than two do not bound a run.
const REASONS_MAX: usize = 2;

/// Returns some lines on what bounded the run.
pub(super) fn of(figures: &Figures) -> Vec<String> {
    let total = figures.total();
    let (ran, waited) = (figures.ran, total.waited());
    // Waits of several threads may be at the same time, so their sum says nothing of the rest.
    let is_one = figures.threads <= 1;
    let is_bound = waited * SHARE >= ran;
    let of_run = format!("The program waited for the pool in {} of {}", time(waited), time(ran));
    let rest = time(ran.saturating_sub(waited));
    let mut sentences = vec![match (is_one, is_bound || figures.open > 0) {
        (true, true) => format!("{of_run}."),
        (true, false) => format!("{of_run}. The other {rest} passed outside of such waits."),
        (false, _) => format!(
            "{} threads of the program waited for the pool, {} in total, in a run of {}.",
            number(figures.threads),
            time(waited),
            time(ran)
        ),
    }];
    if figures.open > 0 {
        let (words, whose) = match figures.open {
            1 => ("wait had", "Its"),
            _ => ("waits had", "Their"),
        };
        sentences.push(format!(
            "{} {words} not ended when the program did. {whose} time is not counted.",
            number(figures.open)
        ));
    }
    if is_bound {
        let whole = if is_one { ran } else { waited };
        sentences.extend(longest(&total, whole).map(|reason| about(reason, total.wait(reason))));
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

fn about(reason: Reason, wait: Amount) -> String {
    let (count, words, took) = (number(wait.count), reason.words(wait.count), time(wait.time()));
    let told = format!("{count} {words} took {took}");
    match reason {
        Reason::Read => format!("{told}. A read can also wait for the commands before it."),
        Reason::Finish | Reason::Event => format!("{told}, {} on average.", time(wait.average())),
        Reason::Room => format!("{told}: a node had not yet taken what was sent before."),
        Reason::Open => format!("The opening of the pool took {took}."),
        Reason::Build | Reason::Write | Reason::Reply => format!("{told}."),
    }
}
