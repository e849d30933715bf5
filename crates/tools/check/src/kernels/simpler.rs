//! Makes single statements simpler.

use super::program::{Act, Compare, Condition, Exchange, Mask, Value};

/// Returns simpler forms of a statement.
pub fn simpler(act: &Act) -> Vec<Act> {
    let mut all = Vec::new();
    match act.clone() {
        Act::Compute { row, to, from, guard } => {
            let with = |row: &str, from: [Value; 3], guard| Act::Compute {
                row: row.to_owned(),
                to,
                from,
                guard,
            };
            if guard.is_some() {
                all.push(with(&row, from, None));
            }
            let [a, ..] = from;
            let zero = Value::Constant(0);
            for other in ["mov", "add"] {
                if row != "mov" && row != other {
                    all.push(with(other, [a, Value::Constant(1), zero], guard));
                }
            }
            if a != Value::Thread {
                all.push(with(&row, [Value::Thread, from[1], from[2]], guard));
            }
        }
        Act::If { id, condition, votes } => {
            if votes {
                all.push(Act::If { id, condition, votes: false });
            }
            all.extend(plainer(&condition).map(|condition| Act::If { id, condition, votes }));
        }
        Act::Loop { id, turns, at_head, votes } => {
            if votes {
                all.push(Act::Loop { id, turns, at_head, votes: false });
            }
            if at_head {
                all.push(Act::Loop { id, turns, at_head: false, votes });
            }
            if !matches!(turns, Value::Constant(_)) {
                all.push(Act::Loop { id, turns: Value::Constant(2), at_head, votes });
            }
        }
        Act::Barrier { guard: Some(_) } => all.push(Act::Barrier { guard: None }),
        Act::Exit { condition, tells: false } => all.push(Act::Exit { condition, tells: true }),
        Act::Meet { .. } => all.push(Act::Barrier { guard: None }),
        Act::Exchange { to, what, mask } => {
            if let Exchange::Shuffle { mode, from, lane, segment, holds: true } = what {
                let what = Exchange::Shuffle { mode, from, lane, segment, holds: false };
                all.push(Act::Exchange { to, what, mask });
            }
            if mask != Mask::All {
                all.push(Act::Exchange { to, what, mask: Mask::All });
            }
        }
        _ => {}
    }
    all
}

/// Returns simpler conditions.
fn plainer(condition: &Condition) -> impl Iterator<Item = Condition> + use<> {
    let first =
        |value| Condition { value, bits: u32::MAX, compare: Compare::Eq, with: Value::Constant(0) };
    let all = [first(Value::Thread), Condition { bits: u32::MAX, ..*condition }];
    let is = *condition;
    all.into_iter().filter(move |other| *other != is)
}
