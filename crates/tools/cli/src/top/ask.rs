//! Asks the nodes all the time, each in a thread of its own, so that none holds up the others.

use std::sync::Arc;

use penstock_client::config::{Config, NodeAddress};
use penstock_link::{InstanceId, LinkError};
use penstock_process::Lock;

use super::look::{Look, Status};
use crate::run::ask_node;

/// What asks the nodes.
#[derive(Debug)]
pub struct Asker {
    config: Arc<Config>,
    /// For each node, whether a thread is asking it.
    asking: Vec<Arc<Lock<bool>>>,
}

/// What a node has said and which running daemon it is, or why it has not.
pub type Said = Result<(Look, Option<InstanceId>), String>;

impl Asker {
    pub fn new(config: Arc<Config>) -> Self {
        let asking = config.nodes.iter().map(|_| Arc::default()).collect();
        Self { config, asking }
    }

    pub fn nodes(&self) -> &[NodeAddress] {
        &self.config.nodes
    }

    pub fn config(&self) -> Arc<Config> {
        self.config.clone()
    }

    /// Asks each node that nobody is asking, and returns their indices. `tell` gets the index of a
    /// node and its answer, from another thread. The search for the address of a host, and a login,
    /// can take any time, so a thread may outlive its use. As long as it does, nobody asks the same
    /// node again.
    pub fn ask(&self, tell: impl Fn(usize, Said) + Clone + Send + 'static) -> Vec<usize> {
        let mut asked = Vec::new();
        for (index, asking) in self.asking.iter().enumerate() {
            if std::mem::replace(&mut *asking.lock(), true) {
                continue;
            }
            asked.push(index);
            let (config, done, teller) = (self.config.clone(), asking.clone(), tell.clone());
            let started = penstock_process::start("top-ask", move || {
                let said = config.nodes.get(index).map(|node| look(&config, node));
                // Before the answer, so that a caller who has it can ask again.
                *done.lock() = false;
                if let Some(said) = said {
                    teller(index, said);
                }
            });
            if let Err(source) = started {
                *asking.lock() = false;
                let error = LinkError::System { doing: "starting a thread", source };
                tell(index, Err(error.to_string()));
            }
        }
        asked
    }
}

fn look(config: &Config, node: &NodeAddress) -> Said {
    let answer =
        ask_node::<Status>(config, node).map_err(|error| super::look::short(&error.to_string()));
    answer.map(|(status, instance)| (Look::read(&status), instance))
}
