//! Selects one of several addresses of the same daemon. A daemon that is named twice is one node.

use std::collections::BTreeMap;

use penstock_link::{Address, InstanceId};

/// The daemons that were met, each with the rank of the address through which it is used.
#[derive(Debug, Default)]
pub struct Claims(BTreeMap<InstanceId, Rank>);

/// The rank of the address comes first, then its place in the list.
type Rank = (u8, usize);

impl Claims {
    /// Notes that the daemon `instance` was met at `address`, which has this index in the list.
    /// Returns whether the daemon is used through this address, as far as is known now. A daemon
    /// whose instance is not proved counts as a node of its own.
    pub fn claim(&mut self, instance: Option<InstanceId>, index: usize, address: &Address) -> bool {
        let Some(instance) = instance else { return true };
        let rank = (address.rank(), index);
        let best = self.0.entry(instance).or_insert(rank);
        *best = rank.min(*best);
        *best == rank
    }

    /// Returns whether the daemon `instance` is still used through the address with this index.
    pub fn holds(&self, instance: Option<InstanceId>, index: usize) -> bool {
        instance.and_then(|instance| self.0.get(&instance)).is_none_or(|best| best.1 == index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_daemon_is_used_through_its_best_address() {
        let address = |text: &str| text.parse::<Address>().unwrap();
        let (tcp, unix) = (address("tcp:localhost:1"), address("unix:/a"));
        let (one, other) = (Some([1; 32]), Some([2; 32]));
        let mut claims = Claims::default();
        assert!(claims.claim(one, 1, &tcp));
        // The same daemon at an earlier index, at a later index, and at a better kind of address.
        assert!(claims.claim(one, 0, &tcp) && !claims.holds(one, 1));
        assert!(!claims.claim(one, 2, &tcp));
        assert!(claims.claim(one, 3, &unix) && !claims.holds(one, 0) && claims.holds(one, 3));
        assert!(!claims.claim(one, 4, &unix) && !claims.claim(one, 5, &tcp));
        // Another daemon, and two that did not prove their instance.
        assert!(claims.claim(other, 6, &tcp) && claims.holds(other, 6));
        assert!(claims.claim(None, 7, &tcp) && claims.claim(None, 8, &tcp));
        assert!(claims.holds(None, 7) && claims.holds(None, 8));
    }
}
