//! What carries the bytes of heaps between nodes: TCP, or UCX where the daemon's environment asks for it and the build has it.
//!
//! It is the node's matter, not the client's: whether there is a network that UCX knows, its operator knows.

/// The variable of the daemon, which its workers inherit.
const VARIABLE: &str = "PENSTOCK_HEAP_TRANSPORT";

/// What heaps of this node offer to other nodes; both sides have to offer UCX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// The stream that the members have anyway.
    Tcp,
    /// UCX.
    Ucx,
}

/// A name that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{VARIABLE}: `{0}` is no transport of heaps; write `tcp` or `ucx`")]
pub struct UnknownTransport(String);

impl Transport {
    /// As the environment says.
    pub(crate) fn configured() -> Result<Self, UnknownTransport> {
        match std::env::var_os(VARIABLE) {
            None => Ok(Self::Tcp),
            Some(name) => Self::named(&name.to_string_lossy()),
        }
    }

    fn named(name: &str) -> Result<Self, UnknownTransport> {
        match name {
            "" | "tcp" => Ok(Self::Tcp),
            "ucx" => Ok(Self::Ucx),
            other => Err(UnknownTransport(other.to_owned())),
        }
    }

    /// Why it can not be used in this build, if so.
    pub(crate) fn lack(self) -> Option<&'static str> {
        let is_built_in = cfg!(feature = "ucx");
        (self == Self::Ucx && !is_built_in)
            .then_some("this build has no UCX (cargo build --features ucx makes one that has)")
    }

    /// What a worker's environment needs besides, before it begins.
    pub(crate) fn environment(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Tcp => &[],
            #[cfg(feature = "ucx")]
            Self::Ucx => penstock_ggas::ucx::ENVIRONMENT,
            #[cfg(not(feature = "ucx"))]
            Self::Ucx => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_none_says_which_there_are() {
        assert_eq!(Transport::named(""), Ok(Transport::Tcp));
        assert_eq!(Transport::named("ucx"), Ok(Transport::Ucx));
        let wrong = Transport::named("rdma").unwrap_err().to_string();
        assert_eq!(
            wrong,
            "PENSTOCK_HEAP_TRANSPORT: `rdma` is no transport of heaps; write `tcp` or `ucx`"
        );
    }

    #[test]
    fn tcp_lacks_nothing_and_changes_no_environment() {
        assert_eq!((Transport::Tcp.lack(), Transport::Tcp.environment().len()), (None, 0));
        assert_eq!(Transport::Ucx.lack().is_none(), cfg!(feature = "ucx"));
    }
}
