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
use penstock_link::{Address, LinkError};
use penstock_wire::describe::Survey;

use super::probe::{describe, survey_each};
use super::{Described, PrivateDirectory, guard, is_this_host, no_nodes, survey_all};
use crate::failure::Failure;
use crate::table;

/// First pause before missing nodes are asked again. Each further one is twice as long.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// Longest pause. Over SSH, each question is a login.
const ASK_AGAIN_MAX: Duration = Duration::from_secs(30);

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
    let address = Address::unix(Surroundings::of_process().own_socket());
    let mut described = survey_patiently(config, wishes, &address);
    let is_own = |it: &Described| {
        it.answer.as_ref().is_err_and(|reason| has_no_own_daemon(&it.node, reason, &address))
    };
    let own = described.iter().position(|it| !wishes.no_local && is_own(it));
    let is_listed = matches!(config.source, Source::Variable | Source::File(_));
    let wants_own = if is_listed && !config.nodes.is_empty() {
        own.is_some()
    } else {
        !wishes.no_local && !described.iter().any(|it| it.answer.is_ok() && is_this_host(&it.node))
    };
    // Nodes that are missing take no place.
    let place = described.iter().take(own.unwrap_or_default()).filter(|it| it.answer.is_ok());
    let place = place.count();
    let own = own.map(|own| described.remove(own).node);
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
        let is_required = own.is_some_and(|own| own.is_named) && !wishes.allow_missing;
        let (before, word) = (found.nodes.len(), if is_required { "missing" } else { "left out" });
        found.add_own(config, place, word)?;
        if is_required && found.nodes.len() == before && before > 0 {
            return Err(Failure::MissingNodes { missing: 1, all: all + 1 });
        }
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
    fn add_own(&mut self, config: &Config, place: usize, word: &str) -> Result<(), Failure> {
        let directory = PrivateDirectory::create(&Surroundings::of_process())?;
        if let Some(socket) = guard::start(&directory, true)? {
            let mut others = std::mem::take(&mut self.nodes);
            let behind = others.split_off(place.min(others.len()));
            self.nodes = others;
            let own = survey_all(config, &[NodeAddress::unix(LOCAL, socket)]);
            self.sort(own, config, word);
            self.nodes.extend(behind);
        }
        self.directory = Some(directory);
        Ok(())
    }
}

/// Asks all nodes, and asks those that are missing again as long as the wishes allow.
fn survey_patiently(config: &Config, wishes: Wishes, own: &Address) -> Vec<Described> {
    let deadline = Instant::now() + wishes.wait;
    let mut answers = survey_each(config, &config.nodes, config.nodes.len() > 1);
    let (mut pause, mut is_told) = (ASK_AGAIN, false);
    loop {
        let all = config.nodes.iter().zip(&answers).enumerate();
        let missing = all.filter_map(|(at, (node, answer))| {
            let reason = answer.as_ref().err()?;
            let is_awaited = node.is_named || config.source == Source::Slurm;
            let is_own = !wishes.no_local && has_no_own_daemon(node, reason, own);
            (is_awaited && !is_own).then_some((at, node, reason))
        });
        let (lost, awaited): (Vec<_>, Vec<_>) = missing.partition(|it| it.2.is_lasting());
        let is_refused = !wishes.allow_missing && lost.iter().any(|it| it.1.is_named);
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || awaited.is_empty() || is_refused {
            return describe(&config.nodes, answers);
        }
        if !std::mem::replace(&mut is_told, true) {
            for (_, node, reason) in &awaited {
                let why = notice::why_absent(reason, config.timeout);
                let seconds = wishes.wait.as_secs();
                table::say(&format!("waiting for node {}, {seconds} s at most: {why}", node.name));
            }
        }
        let places: Vec<_> = awaited.iter().map(|it| it.0).collect();
        let again: Vec<_> = awaited.iter().map(|it| it.1.clone()).collect();
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(ASK_AGAIN_MAX);
        let news = survey_each(config, &again, config.nodes.len() > 1);
        for (place, answer) in places.into_iter().zip(news) {
            if let Some(known) = answers.get_mut(place) {
                *known = answer;
            }
        }
    }
}

/// Returns whether this is the user's own daemon at its default place, and nobody listens there. An
/// announcement on the network can have any name, but not this address.
fn has_no_own_daemon(node: &NodeAddress, reason: &LinkError, own: &Address) -> bool {
    node.name == LOCAL && node.address == *own && reason.is_nobody_there()
}
