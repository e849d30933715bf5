//! Transport of heaps' bytes between nodes: TCP, or UCX if the environment and the build have it.
//!
//! The node decides, not the client: its operator knows whether its network suits UCX.

use penstock_process::variable::HEAP_TRANSPORT;

/// Transport that this node offers for heaps. UCX is used only if both sides offer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// The stream that the members have anyway.
    Tcp,
    Ucx,
}

/// An unknown name of a transport.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{variable}: `{0}` is no transport of heaps; write `tcp` or `ucx`",
    variable = HEAP_TRANSPORT.name
)]
pub struct UnknownTransport(String);

impl Transport {
    /// Returns the transport that the environment names.
    pub(crate) fn configured() -> Result<Self, UnknownTransport> {
        HEAP_TRANSPORT.value().map_or(Ok(Self::Tcp), |name| Self::named(&name.to_string_lossy()))
    }

    fn named(name: &str) -> Result<Self, UnknownTransport> {
        match name {
            "tcp" => Ok(Self::Tcp),
            "ucx" => Ok(Self::Ucx),
            other => Err(UnknownTransport(other.to_owned())),
        }
    }

    /// Returns why this build cannot use it, or `None`.
    pub(crate) fn lack(self) -> Option<&'static str> {
        let is_built_in = cfg!(feature = "ucx");
        (self == Self::Ucx && !is_built_in)
            .then_some("this build has no UCX (cargo build --features ucx makes one that has)")
    }

    /// Returns whether it makes sockets of its own in a worker.
    pub(crate) fn makes_sockets(self) -> bool {
        self == Self::Ucx && self.lack().is_none()
    }

    /// Returns the variables that a worker needs in its environment before it starts.
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
        assert_eq!(Transport::named("tcp"), Ok(Transport::Tcp));
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
        assert!(!Transport::Tcp.makes_sockets());
        assert_eq!(Transport::Ucx.makes_sockets(), cfg!(feature = "ucx"));
    }
}
