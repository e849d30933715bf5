//! Who is let in, and which node is believed: pure decisions over what is known of a public key.

use crate::list::Pin;

/// What a daemon's list says of a client's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// The key is in the list, and the daemon can enforce what stands beside it.
    Allowed,
    /// The key is in the list, with a restriction that this daemon cannot enforce.
    Restricted,
    /// The key is in the list as revoked.
    Revoked,
    No,
}

/// What the other side has shown of the pool's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// It has proved the key of this side.
    Right,
    /// It has proved another key.
    Wrong,
    /// It has proved nothing.
    Absent,
    /// This side has no key to compare with.
    Unknown,
}

/// What a daemon does with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientJudged {
    LetIn,
    /// Let in, and write into the list.
    Enrol,
    /// Refuse: the client must be allowed by name, or needs the pool's key.
    NotEnrolled,
    /// Refuse: the client has another key of the pool.
    WrongKey,
    Revoked,
    /// Refuse: the list restricts the client in a way that this daemon cannot enforce.
    Restricted,
}

/// Decides whether a client is let in. The list comes first: an entry that an administrator has
/// written is neither overruled by the pool's key nor in need of it.
#[must_use]
pub fn judge_client(listed: Listed, proof: Proof) -> ClientJudged {
    match (listed, proof) {
        (Listed::Allowed, _) => ClientJudged::LetIn,
        (Listed::Revoked, _) => ClientJudged::Revoked,
        (Listed::Restricted, _) => ClientJudged::Restricted,
        (Listed::No, Proof::Right) => ClientJudged::Enrol,
        (Listed::No, Proof::Wrong) => ClientJudged::WrongKey,
        (Listed::No, Proof::Absent | Proof::Unknown) => ClientJudged::NotEnrolled,
    }
}

/// What a client does with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeJudged {
    GoOn,
    /// Go on, and pin the node's key.
    Pin,
    /// Hang up: nothing tells this side that it is the right node.
    Unproved,
    /// Hang up: the node has another key of the pool.
    WrongKey,
}

/// Decides whether a client goes on with a node. A node that is pinned with another key never comes
/// here, because its handshake fails.
#[must_use]
pub fn judge_node(pin: Pin, proof: Proof) -> NodeJudged {
    match (pin, proof) {
        (Pin::Known, _) => NodeJudged::GoOn,
        (Pin::Unknown, Proof::Right) => NodeJudged::Pin,
        (Pin::Unknown, Proof::Wrong) => NodeJudged::WrongKey,
        (Pin::Unknown, Proof::Absent | Proof::Unknown) => NodeJudged::Unproved,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROOFS: [Proof; 4] = [Proof::Right, Proof::Wrong, Proof::Absent, Proof::Unknown];

    fn all(listed: Listed) -> [ClientJudged; 4] {
        PROOFS.map(|proof| judge_client(listed, proof))
    }

    #[test]
    fn a_listed_client_needs_no_pool_key() {
        assert_eq!(all(Listed::Allowed), [ClientJudged::LetIn; 4]);
    }

    #[test]
    fn a_revoked_client_stays_out_even_with_the_pools_key() {
        assert_eq!(all(Listed::Revoked), [ClientJudged::Revoked; 4]);
    }

    #[test]
    fn a_restriction_that_cannot_be_enforced_keeps_the_client_out() {
        assert_eq!(all(Listed::Restricted), [ClientJudged::Restricted; 4]);
    }

    #[test]
    fn an_unknown_client_with_the_pools_key_is_enrolled() {
        assert_eq!(judge_client(Listed::No, Proof::Right), ClientJudged::Enrol);
    }

    #[test]
    fn an_unknown_client_with_another_pools_key_is_refused() {
        assert_eq!(judge_client(Listed::No, Proof::Wrong), ClientJudged::WrongKey);
    }

    #[test]
    fn an_unknown_client_without_the_pools_key_is_refused() {
        assert_eq!(judge_client(Listed::No, Proof::Absent), ClientJudged::NotEnrolled);
    }

    #[test]
    fn a_daemon_without_the_pools_key_enrols_nobody() {
        assert_eq!(judge_client(Listed::No, Proof::Unknown), ClientJudged::NotEnrolled);
    }

    #[test]
    fn a_pinned_node_needs_no_pool_key() {
        assert_eq!(PROOFS.map(|it| judge_node(Pin::Known, it)), [NodeJudged::GoOn; 4]);
    }

    #[test]
    fn an_unknown_node_with_the_pools_key_is_pinned() {
        assert_eq!(judge_node(Pin::Unknown, Proof::Right), NodeJudged::Pin);
    }

    #[test]
    fn an_unknown_node_with_another_pools_key_is_refused() {
        assert_eq!(judge_node(Pin::Unknown, Proof::Wrong), NodeJudged::WrongKey);
    }

    #[test]
    fn an_unknown_node_that_proves_nothing_is_refused() {
        assert_eq!(judge_node(Pin::Unknown, Proof::Absent), NodeJudged::Unproved);
    }

    #[test]
    fn a_client_without_the_pools_key_believes_pinned_nodes_only() {
        assert_eq!(judge_node(Pin::Unknown, Proof::Unknown), NodeJudged::Unproved);
    }
}
