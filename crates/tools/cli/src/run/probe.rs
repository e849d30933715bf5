//! Asks which nodes answer, before a program starts.

use std::io;
use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};
use std::time::{Duration, Instant};

use penstock_client::config::{Config, NodeAddress, Surroundings};
use penstock_client::{Claims, Surveyed, survey};
use penstock_link::{Address, InstanceId, Keys, LinkError};
use penstock_wire::describe::Survey;
use penstock_wire::hello::Role;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Longest status of a daemon in bytes: twice that of 256 sessions of 1 KiB, with the limits of 512
/// users, of 2 KiB each.
const STATUS_BYTES_MAX: usize = 5 << 19;

/// Asks a daemon for its status, or the part of it that a `T` has. The daemon has `patience` for
/// the hello, and once more for its answer. Also returns which running daemon it is.
pub fn ask<T: DeserializeOwned>(
    address: &Address,
    role: Role,
    keys: &Keys,
    patience: Duration,
) -> Result<(T, Option<InstanceId>), LinkError> {
    let opened = penstock_link::open(address, role, None, keys, Instant::now() + patience)?;
    let (stream, deadline) = (opened.stream, Instant::now() + patience);
    let not_ours = || LinkError::NotPenstock { peer: address.to_string() };
    let bytes = stream.read_sized_until("the status", STATUS_BYTES_MAX, deadline)?;
    let status = serde_json::from_slice(&bytes).map_err(|_| not_ours())?;
    Ok((status, opened.instance))
}

/// The status of a daemon and which running daemon it is, or why it does not answer.
pub type Answer = Result<(Value, Option<InstanceId>), LinkError>;

/// A node, and the status of its daemon or why it does not answer.
#[derive(Debug)]
pub struct Probed {
    pub node: NodeAddress,
    /// The daemon's status, as JSON.
    pub answer: Result<Value, LinkError>,
}

/// A node, and its survey or why its daemon gives none.
#[derive(Debug)]
pub struct Described {
    pub node: NodeAddress,
    pub answer: Result<Survey, LinkError>,
}

/// Surveys all nodes of `list` at once. A daemon that is named twice counts as one node, at its
/// best address.
pub fn survey_all(config: &Config, list: &[NodeAddress]) -> Vec<Described> {
    describe(list, survey_each(config, list, list.len() > 1))
}

/// Surveys all nodes of `list` at once. With `prove`, daemons tell their instances.
pub(super) fn survey_each(
    config: &Config,
    list: &[NodeAddress],
    prove: bool,
) -> Vec<Result<Surveyed, LinkError>> {
    let ask =
        |node: &NodeAddress| survey(&node.address, &keys_for(node, config)?, config.timeout, prove);
    let answers = penstock_process::at_once("survey", list, ask);
    answers.into_iter().map(answered).collect()
}

/// Returns the answer of a node, which a thread of its own has asked.
fn answered<T>(answer: io::Result<Result<T, LinkError>>) -> Result<T, LinkError> {
    let doing = "asking a node in a thread";
    answer.unwrap_or_else(|source| Err(LinkError::System { doing, source }))
}

/// Returns the nodes with their answers, and each daemon once.
pub(super) fn describe(
    list: &[NodeAddress],
    surveyed: Vec<Result<Surveyed, LinkError>>,
) -> Vec<Described> {
    let surveyed =
        surveyed.into_iter().map(|answer| answer.map(|it| (it.survey, it.instance))).collect();
    distinct(list, surveyed).map(|(node, answer)| Described { node, answer }).collect()
}

/// Keeps each daemon once, at its best address.
fn distinct<T>(
    list: &[NodeAddress],
    answers: Vec<Result<(T, Option<InstanceId>), LinkError>>,
) -> impl Iterator<Item = (NodeAddress, Result<T, LinkError>)> {
    let mut claims = Claims::default();
    let instances: Vec<_> =
        answers.iter().map(|answer| answer.as_ref().ok().and_then(|it| it.1)).collect();
    for (index, (node, instance)) in list.iter().zip(&instances).enumerate() {
        claims.claim(*instance, index, &node.address);
    }
    let answered = list.iter().zip(answers).zip(instances).enumerate();
    answered
        .filter(move |(index, (_, instance))| claims.holds(*instance, *index))
        .map(|(_, ((node, answer), _))| (node.clone(), answer.map(|it| it.0)))
}

/// Loads the keys that the node needs.
pub fn keys_for(node: &NodeAddress, config: &Config) -> Result<Keys, LinkError> {
    config.load_keys_for(std::iter::once(&node.address))
}

/// Asks these daemons at once for their status. Each may take as long as the configuration allows.
pub fn probe_all(config: &Config, list: &[NodeAddress]) -> Vec<Probed> {
    let answers = penstock_process::at_once("ask", list, |node| ask_node(config, node));
    distinct_of(list, answers.into_iter().map(answered).collect())
}

/// Asks the daemon of a node for its status, and which running daemon it is.
pub fn ask_node<T: DeserializeOwned>(
    config: &Config,
    node: &NodeAddress,
) -> Result<(T, Option<InstanceId>), LinkError> {
    ask(&node.address, Role::Control, &keys_for(node, config)?, config.timeout)
}

/// Returns the nodes with the answers of their daemons, and each daemon once.
pub fn distinct_of(list: &[NodeAddress], answers: Vec<Answer>) -> Vec<Probed> {
    distinct(list, answers).map(|(node, answer)| Probed { node, answer }).collect()
}

/// Whether the node is on this host, so that its devices are the local ones.
pub fn is_this_host(node: &NodeAddress) -> bool {
    node.address.is_local() || node.address.host().is_some_and(is_own_host)
}

fn is_own_host(host: &str) -> bool {
    Surroundings::of_process().is_own_host(host)
        || (host, 0)
            .to_socket_addrs()
            .is_ok_and(|mut addresses| addresses.any(|address| is_own_address(address.ip())))
}

/// A socket can be bound only to an address of this host.
fn is_own_address(address: IpAddr) -> bool {
    !address.is_unspecified() && UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_known_by_any_of_its_names() {
        assert!(is_this_host(&NodeAddress::unix("x", "/x".into())));
        assert!(is_this_host(&NodeAddress::tcp("127.0.0.1", 1)));
        assert!(
            is_this_host(&NodeAddress::tcp("::1", 1))
                || !is_own_address(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]))
        );
        // Reserved for documentation, so no host has it.
        assert!(!is_this_host(&NodeAddress::tcp("192.0.2.1", 1)));
    }
}
