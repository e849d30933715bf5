//! `penstock kill` and `penstock drain`: what an administrator orders a node's daemon to do.

pub mod args;

use std::process::ExitCode;

use penstock_client::config::{Config, NodeAddress};
use penstock_link::LinkError;
use penstock_wire::administration::{Act, Outcome};
use penstock_wire::hello::Verdict;

use crate::failure::Failure;
use crate::run::{configured, keys_for};
use crate::table;
use args::{DrainArgs, KillArgs};

/// Ends a session.
pub fn kill(args: &KillArgs) -> Result<ExitCode, Failure> {
    let (config, node) = named(&args.node)?;
    order(&config, &node, Act::Kill(args.session))?;
    table::print(&format!("session {} of node {} ends\n", args.session, node.name))?;
    Ok(ExitCode::SUCCESS)
}

/// Has a node take no new clients, or take them again.
pub fn drain(args: &DrainArgs) -> Result<ExitCode, Failure> {
    let (config, node) = named(&args.node)?;
    let (act, done) = match args.undo {
        false => (Act::Drain, "takes no new clients; the sessions that it has go on"),
        true => (Act::Undrain, "takes new clients"),
    };
    order(&config, &node, act)?;
    table::print(&format!("node {} {done}\n", node.name))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the node that the command line names.
fn named(name: &str) -> Result<(Config, NodeAddress), Failure> {
    let config = configured(Some(name))?;
    match &*config.nodes {
        [node] => Ok((config.clone(), node.clone())),
        others => Err(Failure::Argument {
            argument: name.to_owned(),
            reason: format!("it names {} nodes; name one", others.len()),
        }),
    }
}

/// Gives the daemon of a node an order.
///
/// # Errors
/// Fails if the daemon does not obey.
pub fn order(config: &Config, node: &NodeAddress, act: Act) -> Result<(), Failure> {
    let keys = keys_for(node, config)?;
    let outcome = penstock_link::order(&node.address, act, &keys, config.timeout);
    judge(outcome, &node.name, act)
}

fn judge(outcome: Result<Outcome, LinkError>, node: &str, act: Act) -> Result<(), Failure> {
    let node = node.to_owned();
    match (outcome, act) {
        (Ok(Outcome::Done), _) => Ok(()),
        (Ok(Outcome::NoSession), Act::Kill(session)) => Err(Failure::NoSession { node, session }),
        (Err(LinkError::Refused { verdict: Verdict::WrongUser, .. }), _) => {
            Err(Failure::NoAdministrator { node })
        }
        (Ok(_), _) | (Err(LinkError::Refused { verdict: Verdict::NotUnderstood, .. }), _) => {
            Err(Failure::UnknownOrder { node })
        }
        (Err(error), _) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_daemon_does_not_do_has_a_reason() {
        let refused = |verdict| Err(LinkError::Refused { peer: "p".to_owned(), verdict });
        let why = |outcome, act| judge(outcome, "gpu01", act).unwrap_err().to_string();
        let kill = Act::Kill(7);
        assert!(judge(Ok(Outcome::Done), "gpu01", kill).is_ok());
        assert_eq!(why(Ok(Outcome::NoSession), kill), "node gpu01 has no session 7");
        assert!(why(refused(Verdict::WrongUser), kill).contains("root may do this"));
        for outcome in [Ok(Outcome::UnknownAct), Ok(Outcome::NoSession)] {
            assert!(why(outcome, Act::Drain).contains("older release"));
        }
        assert!(why(refused(Verdict::NotUnderstood), Act::Drain).contains("older release"));
        assert!(why(refused(Verdict::WrongKey), kill).contains("does not accept our key"));
    }

    #[test]
    fn an_order_is_for_one_node() {
        let several = named("unix:/a,unix:/b").unwrap_err();
        assert_eq!(several.exit_code(), 2, "{several}");
        assert!(several.to_string().contains("it names 2 nodes"), "{several}");
        assert_eq!(named("unix:/a").unwrap().1.to_string(), "unix:/a");
    }
}
