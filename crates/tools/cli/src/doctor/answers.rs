//! What the doctor must be told, because no file says it.

use penstock_client::config::{Config, Surroundings};
use penstock_doctor::Answers;
use penstock_link::{Key, LinkError};
use penstock_process::variable;
use penstock_wire::hello::Verdict;
use serde_json::Value;

use crate::run::{Probed, library, probe_all};

/// Whom to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Ask the nodes of the pool for their status.
    Nodes,
    Nobody,
}

/// Returns the answers of this host. `penstock_doctor::facts::Pool` lists their names.
pub fn of_host(ask: Ask) -> Answers {
    let mut answers = Answers::default();
    answers.add("architecture", std::env::consts::ARCH);
    for variable in [variable::ICD_VENDORS, variable::LD_LIBRARY_PATH] {
        if let Some(value) = variable.text() {
            answers.add(&format!("variable.{}", variable.name), &value);
        }
    }
    let surroundings = Surroundings::of_process();
    if let Some(file) = surroundings.pool_file() {
        answers.add("pool.file", &file.to_string_lossy());
    }
    answers.add("pool.runtime", &surroundings.runtime_directory().to_string_lossy());
    answers.add("pool.library", if library::find().is_ok() { "found" } else { "missing" });
    match Config::load() {
        Ok(config) => pool(&mut answers, &config, &surroundings, ask),
        Err(error) => answers.add("pool.problem", &error.to_string()),
    }
    answers
}

fn pool(answers: &mut Answers, config: &Config, surroundings: &Surroundings<'_>, ask: Ask) {
    if let Some(key) = config.key.clone().or_else(|| surroundings.key_file()) {
        answers.add("pool.key", &key.to_string_lossy());
        if key.exists() {
            let state = if Key::load(&key).is_ok() { "usable" } else { "unusable" };
            answers.add("pool.key-state", state);
        }
    }
    if config.nodes.iter().any(|node| node.address.needs_key()) {
        answers.add("pool.network", "yes");
    }
    if ask == Ask::Nodes {
        for Probed { node, answer } in probe_all(config, &config.nodes) {
            answers.add("pool.node", &format!("{node} {}", state(&answer)));
        }
    }
}

/// Returns a word for what a node answered, and details.
fn state(answer: &Result<Value, LinkError>) -> String {
    let error = match answer {
        Ok(status) => {
            let version = status.get("version").and_then(Value::as_str).unwrap_or("unknown");
            let is_drained = status.get("draining").and_then(Value::as_bool) == Some(true);
            return format!("{} {version}", if is_drained { "drained" } else { "answers" });
        }
        Err(error) => error,
    };
    let word = match error {
        LinkError::WrongVersion { .. }
        | LinkError::Refused { verdict: Verdict::WrongVersion, .. } => "version",
        LinkError::WrongKey { .. } | LinkError::Refused { verdict: Verdict::WrongKey, .. } => "key",
        _ => "silent",
    };
    format!("{word} {error}")
}

/// Returns the names of this host and its user, which a copy must not contain.
pub fn secrets() -> Vec<String> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let home = variable::HOME.path();
    let user = home.as_deref().and_then(|path| path.file_name()).map(|it| it.to_string_lossy());
    let user = user.map(|name| name.into_owned());
    [Some(host), user].into_iter().flatten().filter(|name| !name.is_empty()).collect()
}
