//! The configuration of the pool, as the command `penstock` found it.

use crate::tree::{Answers, Node, NodeKind, Tree};

/// What the command says in answers with these names:
///
/// * `pool.file`, `pool.key`, `pool.runtime`: path of `pool.toml`, of the key file, and of the
///   directory for sockets
/// * `pool.key-state`: `usable` or `unusable`
/// * `pool.network`: `yes` if a node is reached over a network
/// * `pool.problem`: why the configuration cannot be read
/// * `pool.library`: `found` or `missing`
/// * `pool.node`: the address of a node, then `answers`, `drained`, `silent`, `key` or `version`,
///   then details
#[derive(Clone, Debug)]
pub struct Pool {
    /// `pool.toml`, if it exists.
    pub file: Option<(String, Node)>,
    /// Path of the key file.
    pub key_path: Option<String>,
    /// The key file, if it exists.
    pub key: Option<Node>,
    pub key_state: KeyState,
    pub uses_network: bool,
    pub problem: Option<String>,
    pub lacks_library: bool,
    pub nodes: Vec<(String, NodeAnswer)>,
    /// The directory for the sockets of the user's daemon, if it exists.
    pub runtime: Option<(String, Node)>,
}

/// Whether the content of the key file is a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    Unknown,
    Usable,
    Unusable,
}

/// What a node of the pool answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeAnswer {
    /// The node runs this release.
    Answers(String),
    /// The node runs this release, and takes no new clients.
    Drained(String),
    Silent(String),
    /// The node has another key, or one of the sides has none.
    Key(String),
    /// The node speaks another version of the protocol.
    Version(String),
}

impl Pool {
    pub fn read(tree: &Tree, answers: &Answers) -> Self {
        let path = |name: &str| answers.get(name).map(|path| path.trim_matches('/').to_owned());
        let with_node = |path: String| Some((path.clone(), tree.node(&path)?));
        let key_path = path("pool.key");
        Self {
            file: path("pool.file").and_then(with_node),
            key: key_path.as_deref().and_then(|path| tree.node(path)),
            key_path,
            key_state: match answers.get("pool.key-state") {
                Some("usable") => KeyState::Usable,
                Some("unusable") => KeyState::Unusable,
                _ => KeyState::Unknown,
            },
            uses_network: answers.get("pool.network") == Some("yes"),
            problem: answers.get("pool.problem").map(str::to_owned),
            lacks_library: answers.get("pool.library") == Some("missing"),
            nodes: answers.all("pool.node").filter_map(node_answer).collect(),
            runtime: path("pool.runtime")
                .and_then(with_node)
                .filter(|(_, node)| node.kind == NodeKind::Directory),
        }
    }
}

fn node_answer(text: &str) -> Option<(String, NodeAnswer)> {
    let (address, rest) = text.split_once(' ')?;
    let (word, details) = rest.split_once(' ').unwrap_or((rest, ""));
    let details = details.to_owned();
    let answer = match word {
        "answers" => NodeAnswer::Answers(details),
        "drained" => NodeAnswer::Drained(details),
        "silent" => NodeAnswer::Silent(details),
        "key" => NodeAnswer::Key(details),
        "version" => NodeAnswer::Version(details),
        _ => return None,
    };
    Some((address.to_owned(), answer))
}
