//! `penstock top`: nodes, devices and clients of the pool, anew each second.
//!
//! From below: `look` reads what a daemon says, `rates` compares two looks, `rows` makes rows of
//! them, `state` decides what is shown and what a key does, and `draw` fills the screen. None of
//! these does I/O. `ask` asks the nodes, `screen` has the terminal, and `watch` brings all together
//! (docs/decisions/0083-top-asks-as-status-does.md).

pub mod args;
mod ask;
mod draw;
mod look;
mod once;
mod rates;
mod rows;
mod screen;
mod state;
mod watch;

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::run::{configured, no_nodes, share_logins};
use crate::table;
use args::TopArgs;
use ask::Asker;
use rows::{Known, Node};
use state::State;

/// Time between two looks at a node that answers in time.
const REFRESH: Duration = Duration::from_secs(1);

/// Longest time that a daemon has for the hello, and once more for its answer. A node that needs
/// longer is silent to a person who watches.
const STEP_MAX: Duration = Duration::from_millis(3_500);

/// Longest wait for all nodes with `--once`.
const ROUND_MAX: Duration = Duration::from_secs(7);

/// Shows the pool until the user ends it, or once.
pub fn top(args: &TopArgs) -> Result<ExitCode, Failure> {
    let mut config = configured(args.nodes.as_deref())?;
    if config.nodes.is_empty() {
        return Err(no_nodes());
    }
    config.timeout = config.timeout.min(STEP_MAX);
    // Held to the end: one login for all looks at a node.
    let _shared = share_logins(&config)?;
    let asker = Asker::new(Arc::new(config));
    let nodes = asker.nodes().iter().map(|node| (node.name.clone(), table::address(node)));
    let state = State::new(nodes);
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if args.once || args.json || !is_terminal {
        let state = look_twice(&asker, state);
        return tell(&state.nodes, args.json);
    }
    watch::watch(&asker, state)
}

/// Looks at all nodes twice, and waits for each of them for a limited time.
fn look_twice(asker: &Asker, mut state: State) -> State {
    let begun = Instant::now();
    let (teller, told) = mpsc::channel();
    let tell = move |index, said| {
        // The caller may have given up.
        _ = teller.send((index, said, begun.elapsed().as_secs_f64()));
    };
    for pause_end in [begun, begun + REFRESH] {
        // What comes late still counts.
        while let Ok((index, said, at)) =
            told.recv_timeout(pause_end.saturating_duration_since(Instant::now()))
        {
            state.hear(index, said, at);
        }
        // The first round may have taken longer than the pause.
        let round = Instant::now();
        let mut awaited: BTreeSet<usize> = asker.ask(tell.clone()).into_iter().collect();
        while !awaited.is_empty()
            && let Ok((index, said, at)) =
                told.recv_timeout((round + ROUND_MAX).saturating_duration_since(Instant::now()))
        {
            awaited.remove(&index);
            state.hear(index, said, at);
        }
    }
    state.look_at_clock(begun.elapsed().as_secs_f64());
    state
}

fn tell(nodes: &[Node], as_json: bool) -> Result<ExitCode, Failure> {
    let (mut silent, all) = (0, nodes.iter().filter(|node| !node.is_known_already).count());
    for node in nodes {
        if let Known::Silent(why) = &node.known {
            silent += 1;
            table::say(&format!("node {} does not answer: {why}", node.name));
        }
    }
    let text = match as_json {
        true => format!("{:#}\n", once::document(nodes)),
        false => once::text(nodes, table::terminal_width()),
    };
    table::print(&text)?;
    match silent {
        0 => Ok(ExitCode::SUCCESS),
        _ if silent == all => Err(Failure::NoneAnswers),
        _ => Err(Failure::SomeSilent { silent, all }),
    }
}
