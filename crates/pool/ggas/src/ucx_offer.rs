//! Whether a heap offers UCX, and the agreement on it with a member that shares no memory. Without
//! the feature `ucx` no heap offers it.

use std::time::Instant;

use penstock_link::Stream;

use crate::connection::{MemberConnection, ProxyTransport};
use crate::error::HeapError;

/// A heap's offer of UCX.
#[cfg(feature = "ucx")]
#[derive(Debug, Default)]
pub(crate) struct UcxOffer(penstock_process::Lock<crate::ucx::Offer>);

/// The offer of a build without UCX.
#[cfg(not(feature = "ucx"))]
#[derive(Debug, Default)]
pub(crate) struct UcxOffer(());

#[cfg(not(feature = "ucx"))]
#[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with the feature")]
impl UcxOffer {
    pub(crate) fn is_made(&self) -> bool {
        false
    }

    pub(crate) fn withdraw(&self) {}

    /// Returns the connection to a member that shares no memory: over the stream.
    pub(crate) fn connect(
        &self,
        _member: u32,
        _is_accepted: bool,
        stream: Stream,
        _deadline: Instant,
    ) -> Result<MemberConnection, HeapError> {
        Ok(MemberConnection::Proxied(Box::new(stream), ProxyTransport::Stream))
    }
}

#[cfg(feature = "ucx")]
impl UcxOffer {
    pub(crate) fn make(&self) {
        self.0.lock().make();
    }

    pub(crate) fn is_made(&self) -> bool {
        self.0.lock().is_made()
    }

    /// Gives up the engine. The carriers that hold it keep it.
    pub(crate) fn withdraw(&self) {
        self.0.lock().take();
    }

    /// Returns the connection to a member that shares no memory: over UCX if both members offer it.
    pub(crate) fn connect(
        &self,
        member: u32,
        is_accepted: bool,
        stream: Stream,
        deadline: Instant,
    ) -> Result<MemberConnection, HeapError> {
        use crate::ucx::UcxAgreement;

        let by_stream =
            |stream: Stream, transport| Ok(MemberConnection::Proxied(Box::new(stream), transport));
        if !self.is_made() {
            return by_stream(stream, ProxyTransport::Stream);
        }
        if !is_accepted {
            let why = "the other member's node does not offer UCX".to_owned();
            return by_stream(stream, ProxyTransport::StreamInstead(why));
        }
        let engine = self.0.lock().engine();
        match crate::ucx::agree(engine, member, stream, deadline)? {
            UcxAgreement::Carrier(carrier, transports) => {
                let transport = ProxyTransport::Ucx(transports);
                Ok(MemberConnection::Proxied(Box::new(carrier), transport))
            }
            UcxAgreement::Stream(stream, why) => {
                by_stream(stream, ProxyTransport::StreamInstead(why))
            }
        }
    }
}
