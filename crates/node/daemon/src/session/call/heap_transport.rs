//! The transport of a heap's bytes to other nodes, and log lines about it.

use penstock_ggas::{Heap, ProxyTransport};
use penstock_wire::describe::HeapPath;

use crate::session::shared_session::SharedSession;

/// Lets a heap offer the transport that this node's environment names.
#[cfg(feature = "ucx")]
pub(super) fn offer(heap: &Heap) {
    use crate::transport::Transport;

    // The daemon has checked the name at its start.
    if Transport::configured() == Ok(Transport::Ucx) {
        heap.offer_ucx();
    }
}

/// Does nothing: without UCX there is only the members' stream.
#[cfg(not(feature = "ucx"))]
pub(super) fn offer(_: &Heap) {}

/// Returns how the proxy reaches a PE.
pub(super) fn path(heap: &Heap, pe: u32) -> HeapPath {
    let member = usize::try_from(pe).ok().and_then(|pe| heap.plan().members.get(pe));
    match member.and_then(|member| heap.transport(*member)) {
        Some(ProxyTransport::Ucx(_)) => HeapPath::ProxyUcx,
        _ => HeapPath::Proxy,
    }
}

impl SharedSession {
    /// Logs if a heap's bytes go another way than usual, or should but do not.
    pub(super) fn log_transports(&self, heap: &Heap) {
        for member in heap.plan().others() {
            match heap.transport(member) {
                Some(transport @ ProxyTransport::Ucx(_)) => {
                    tracing::info!(member, path = %transport, "heap");
                }
                Some(ProxyTransport::StreamInstead(why)) => {
                    self.complain("a heap reaches another node over TCP", &why)
                }
                _ => {}
            }
        }
    }
}
