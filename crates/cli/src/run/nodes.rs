//! Which nodes a command uses: those that the user named, or those that are found.
//!
//! A program that computes somewhere else than its user said is worse than one that does not
//! start. So a list of nodes is taken as it is: no node joins it, and a node of it that is missing
//! ends the command unless the user has allowed that. Only where nobody has named nodes does this
//! host offer its own devices.

use std::thread;
use std::time::{Duration, Instant};

use penstock_client::config::{Config, LOCAL, NodeAddress, Source, Surroundings};
use penstock_client::notice;
use penstock_link::LinkError;
use penstock_wire::describe::Survey;

use super::{Described, PrivateDirectory, guard, is_this_host, no_nodes, survey_all};
use crate::failure::Failure;
use crate::table;

/// Pause before missing nodes are asked again.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// What a command wants, besides its configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    /// No daemon is started for the devices of this host.
    pub no_local: bool,
    /// Named nodes may be missing.
    pub allow_missing: bool,
    /// Longest wait for missing nodes.
    pub wait: Duration,
}

#[derive(Debug)]
pub struct Found {
    /// Nodes that answer, at least one, and what their daemons know of them.
    pub nodes: Vec<(NodeAddress, Survey)>,
    /// Nodes that do not answer, and why.
    pub silent: Vec<(NodeAddress, LinkError)>,
    /// Guarded directory of the daemon that serves only the local devices, if there is one. The
    /// daemon ends with this process.
    pub directory: Option<PrivateDirectory>,
}

/// Asks all nodes what they have, and names each node that does not answer in one line.
///
/// Starts a daemon for the devices of this host if nobody has named nodes and no daemon of the
/// configuration has these devices, or if the user has named `local` and has no daemon.
pub fn find_nodes(config: &Config, wishes: Wishes) -> Result<Found, Failure> {
    let mut described = survey_patiently(config, wishes);
    let own = described.iter().position(|it| has_no_own_daemon(it) && !wishes.no_local);
    let is_listed = matches!(config.source, Source::Variable | Source::File(_));
    let wants_own = if is_listed && !config.nodes.is_empty() {
        own.is_some()
    } else {
        !wishes.no_local && !described.iter().any(|it| it.answer.is_ok() && is_this_host(&it.node))
    };
    if let Some(own) = own {
        described.remove(own);
    }
    let missing = described.iter().filter(|it| it.answer.is_err() && it.node.is_named).count();
    let is_refused = missing > 0 && !wishes.allow_missing;
    let all = described.len();
    let mut found = Found { nodes: Vec::new(), silent: Vec::new(), directory: None };
    let word = if is_refused { "missing" } else { "left out" };
    found.sort(described, config, word);
    if is_refused {
        return Err(match found.nodes.is_empty() && !wants_own {
            true => Failure::NoneAnswers,
            false => Failure::MissingNodes { missing, all: all + usize::from(wants_own) },
        });
    }
    if wants_own {
        found.add_own(config, own.unwrap_or_default())?;
    }
    match (found.nodes.is_empty(), config.nodes.is_empty() && found.silent.is_empty()) {
        (false, _) => Ok(found),
        (true, true) => Err(no_nodes()),
        (true, false) => Err(Failure::NoneAnswers),
    }
}

impl Found {
    fn sort(&mut self, described: Vec<Described>, config: &Config, word: &str) {
        for Described { node, answer } in described {
            match answer {
                Ok(survey) => self.nodes.push((node, survey)),
                Err(reason) => {
                    let why = notice::why_absent(&reason, config.timeout);
                    table::say(&format!("node {} is {word}: {why}", node.name));
                    self.silent.push((node, reason));
                }
            }
        }
    }

    /// Starts a daemon for the devices of this host, and gives it this place in the list.
    fn add_own(&mut self, config: &Config, place: usize) -> Result<(), Failure> {
        let directory = PrivateDirectory::create(&Surroundings::of_process())?;
        if let Some(socket) = guard::start(&directory, true)? {
            let mut others = std::mem::take(&mut self.nodes);
            let behind = others.split_off(place.min(others.len()));
            self.nodes = others;
            let own = survey_all(config, &[NodeAddress::unix(LOCAL, socket)]);
            self.sort(own, config, "left out");
            self.nodes.extend(behind);
        }
        self.directory = Some(directory);
        Ok(())
    }
}

/// Asks all nodes, and asks again as long as one is missing and the wishes allow.
fn survey_patiently(config: &Config, wishes: Wishes) -> Vec<Described> {
    let deadline = Instant::now() + wishes.wait;
    let mut is_told = false;
    loop {
        let described = survey_all(config, &config.nodes);
        let is_awaited = |it: &&Described| match (&it.answer, &config.source) {
            (Ok(_), _) => false,
            _ if has_no_own_daemon(it) && !wishes.no_local => false,
            (Err(_), Source::Slurm) => true,
            (Err(_), _) => it.node.is_named,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let mut awaited = described.iter().filter(is_awaited).peekable();
        if left.is_zero() || awaited.peek().is_none() {
            return described;
        }
        if !std::mem::replace(&mut is_told, true) {
            for Described { node, answer } in awaited {
                let Err(reason) = answer else { continue };
                let why = notice::why_absent(reason, config.timeout);
                let seconds = wishes.wait.as_secs();
                table::say(&format!("waiting for node {}, {seconds} s at most: {why}", node.name));
            }
        }
        thread::sleep(ASK_AGAIN.min(left));
    }
}

/// Returns whether this is the user's own daemon at its default place, and nobody listens there.
fn has_no_own_daemon(described: &Described) -> bool {
    let is_absent = described.answer.as_ref().is_err_and(LinkError::is_nobody_there);
    is_absent && described.node.name == LOCAL
}
