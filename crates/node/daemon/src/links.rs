//! A worker's links to other nodes, by the keys of the nodes. The worker ends the links to a node
//! if the daemon says that the node's key was revoked.

use std::os::fd::OwnedFd;

use penstock_link::{Leash, Stream};

use crate::message::NodeKey;

/// The links whose nodes have proved a key.
#[derive(Debug, Default)]
pub(crate) struct Links(Vec<Link>);

#[derive(Debug)]
struct Link {
    node: NodeKey,
    leash: Leash,
}

impl Links {
    /// Continues a connection that the daemon has handed over.
    pub(crate) fn resume(
        &mut self,
        socket: Option<OwnedFd>,
        note: &[u8],
        node: Option<NodeKey>,
    ) -> Result<Stream, String> {
        let socket = socket.ok_or_else(|| {
            "its socket did not come; this process may have too many files open".to_owned()
        })?;
        let mut stream = Stream::resume(socket, note).map_err(|error| error.to_string())?;
        if let Some(node) = node {
            let leash = stream.leash().map_err(|error| error.to_string())?;
            self.0.retain(|link| !link.leash.is_loose());
            self.0.push(Link { node, leash });
        }
        Ok(stream)
    }

    /// Ends the links to a node.
    pub(crate) fn end(&mut self, node: &NodeKey) {
        self.0.retain(|link| {
            let ends = link.node == *node;
            if ends {
                link.leash.cut();
            }
            !ends
        });
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn linked(links: &mut Links, node: Option<NodeKey>) -> (Stream, Stream) {
        let (here, there) = UnixStream::pair().unwrap();
        let stream = links.resume(Some(here.into()), b"unix:", node).unwrap();
        (stream, Stream::from_fd(there.into()).unwrap())
    }

    #[test]
    fn the_links_to_one_node_end_and_others_stay() {
        let mut links = Links::default();
        let (one, two) = ([1; 32], [2; 32]);
        let ended = [one, one].map(|node| linked(&mut links, Some(node)));
        let stay = [None, Some(two)].map(|node| linked(&mut links, node));
        links.end(&one);
        assert!(ended.iter().all(|(here, there)| here.has_hung_up() && there.has_hung_up()));
        assert!(!stay.iter().any(|(here, there)| here.has_hung_up() || there.has_hung_up()));
        assert_eq!(links.0.len(), 1);
    }

    #[test]
    fn links_that_are_gone_are_forgotten_and_were_not_kept_open() {
        let mut links = Links::default();
        for _ in 0..100 {
            let (here, there) = linked(&mut links, Some([1; 32]));
            drop(here);
            assert!(there.has_hung_up());
        }
        assert_eq!(links.0.len(), 1);
    }

    #[test]
    fn a_socket_that_did_not_come_is_an_error() {
        let refused = Links::default().resume(None, b"unix:", None).unwrap_err();
        assert!(refused.contains("too many files"), "{refused}");
    }
}
