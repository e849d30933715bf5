//! Copies of what the facts need of a host, without what identifies the host or its users.
//!
//! The filters of [`crate::tree::keep`] have already left out everything that no check needs. What
//! can still identify somebody is in paths and answers: names of users and hosts, and addresses.
//! [`collect`] replaces them. Equal names get equal replacements, so all findings stay.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::facts::Facts;
use crate::tree::{Listing, Tree};

/// A copy of a tree, and what was replaced in it.
#[derive(Debug)]
pub struct Collected {
    pub tree: Listing,
    names: Names,
}

impl Collected {
    /// Replaces the names and addresses in a text as in the tree.
    pub fn anonymous(&self, text: &str) -> String {
        self.names.replace(text)
    }
}

/// Reads everything that the facts need, and returns it without names and addresses. `secrets` are
/// the names of hosts and users that are known, such as this host's name.
pub fn collect(tree: Tree, secrets: &[String]) -> Collected {
    let tree = tree.recorded();
    Facts::read(&tree);
    let record = tree.into_record();
    let names = Names::new(&record, secrets);
    // The kernel's files have no names of people, but names such as `kvm`, which somebody may have.
    let is_kernel = |path: &str| ["sys/", "proc/", "dev/"].iter().any(|it| path.starts_with(it));
    let tree =
        record.renamed(
            |path, text| {
                if is_kernel(path) { without_addresses(text) } else { names.replace(text) }
            },
        );
    Collected { tree, names }
}

/// Names to replace, and their replacements. The longest name comes first, because it may contain
/// another one.
#[derive(Debug)]
struct Names(Vec<(String, String)>);

impl Names {
    fn new(listing: &Listing, secrets: &[String]) -> Self {
        let text = listing.to_string();
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        let mut add = |name: &str, kind: &str| {
            // A name of one or two letters is in many words, and identifies nobody.
            if name.len() > 2 && !names.contains_key(name) && !is_common(name) {
                let number = names.len() + 1;
                names.insert(name.to_owned(), format!("{kind}{number}"));
            }
        };
        for secret in secrets {
            add(secret, "name");
            secret.split('.').take(1).for_each(|short| add(short, "name"));
        }
        for path in text.split(|letter: char| letter.is_whitespace() || "=:,|'\"".contains(letter))
        {
            let mut parts = path.split('/').skip_while(|part| *part != "home");
            parts.nth(1).into_iter().for_each(|user| add(user, "user"));
        }
        // Names of nodes stand in answers, as in `pool.node = tcp:gpu07:7367 silent ...`.
        for line in text.lines().filter(|line| line.contains("pool.node = ")) {
            let address = line.split_whitespace().nth(2).unwrap_or_default();
            let Some(place) = ["tcp:", "ssh:"].iter().find_map(|it| address.strip_prefix(it))
            else {
                continue;
            };
            let (user, host) = place.rsplit_once('@').unwrap_or(("", place));
            add(user, "user");
            add(host.rsplit_once(':').map_or(host, |(host, _)| host), "node");
        }
        for line in text.lines().filter(|line| line.starts_with("etc/libvirt/qemu/")) {
            let name = line.trim_start_matches("etc/libvirt/qemu/").split(".xml").next();
            name.into_iter().for_each(|name| add(name, "domain"));
        }
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        Self(names)
    }

    fn replace(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, replacement) in &self.0 {
            text = replace_words(&text, name, replacement);
        }
        without_addresses(&text)
    }
}

/// Returns whether a name is one that every system has, and that paths need.
fn is_common(name: &str) -> bool {
    // Names of directories, words of the answers, and groups for devices.
    const COMMON: [&str; 35] = [
        "root",
        "local",
        "localhost",
        "user",
        "lib",
        "usr",
        "etc",
        "home",
        "opt",
        "run",
        "tmp",
        "penstock",
        "config",
        "pool",
        "key",
        "toml",
        "variable",
        "architecture",
        "file",
        "runtime",
        "network",
        "library",
        "node",
        "tcp",
        "unix",
        "answers",
        "drained",
        "silent",
        "version",
        "render",
        "video",
        "kvm",
        "rdma",
        "libvirt",
        "slurm",
    ];
    // A tree may be collected from a collected tree.
    let is_replacement = ["name", "user", "node", "domain"].iter().any(|kind| {
        let number = name.strip_prefix(kind).unwrap_or_default();
        !number.is_empty() && number.chars().all(|digit| digit.is_ascii_digit())
    });
    is_replacement || COMMON.contains(&name) || name.contains('/') || name.starts_with('.')
}

/// Replaces a name where it is not a part of a longer word.
fn replace_words(text: &str, name: &str, replacement: &str) -> String {
    let is_inside = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
    let mut result = String::new();
    let mut rest = text;
    let mut before = None;
    while let Some((left, right)) = rest.split_once(name) {
        let last = left.chars().last().or(before);
        let is_word = !is_inside(last) && !is_inside(right.chars().next());
        result.push_str(left);
        result.push_str(if is_word { replacement } else { name });
        before = name.chars().last();
        rest = right;
    }
    result.push_str(rest);
    result
}

/// Replaces addresses of Ethernet, of IP, and long hexadecimal numbers such as keys and UUIDs.
fn without_addresses(text: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || ":.-_".contains(letter);
    let mut result = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let bare = word.trim_end_matches([':', '.', '-']);
        result.push_str(&without_address(bare));
        result.push_str(word.strip_prefix(bare).unwrap_or_default());
        let next = after.find(is_part).unwrap_or(after.len());
        let (gap, after) = after.split_at(next);
        result.push_str(gap);
        rest = after;
    }
    result
}

fn without_address(word: &str) -> String {
    for separator in [':', '-'] {
        // 20 bytes are the address of an InfiniBand interface.
        let parts: Vec<&str> = word.split(separator).collect();
        let is_hex =
            |part: &&str| part.len() == 2 && part.chars().all(|digit| digit.is_ascii_hexdigit());
        if parts.len() >= 6 && parts.iter().all(is_hex) {
            return "MAC".to_owned();
        }
    }
    // Interfaces are named after their address if the system knows no better name.
    for prefix in ["enx", "wlx", "wwx"] {
        let digits = word.strip_prefix(prefix).unwrap_or_default();
        if digits.len() == 12 && digits.chars().all(|digit| digit.is_ascii_hexdigit()) {
            return format!("{prefix}MAC");
        }
    }
    let digits: Vec<&str> = word.split(['-', '.', ':', '_']).collect();
    let is_long =
        |part: &&str| part.len() >= 24 && part.chars().all(|digit| digit.is_ascii_hexdigit());
    // A UUID may have a word before it, as in `GPU-123e4567-...`.
    let uuid = digits.get(digits.len().saturating_sub(5)..).unwrap_or_default();
    let lengths: Vec<usize> = uuid.iter().map(|part| part.len()).collect();
    let is_hex = uuid.iter().all(|part| part.chars().all(|digit| digit.is_ascii_hexdigit()));
    if digits.iter().any(is_long) || (is_hex && lengths == [8, 4, 4, 4, 12]) {
        return "ID".to_owned();
    }
    let place = ["tcp:", "ssh:"].iter().find_map(|scheme| word.strip_prefix(scheme));
    let host = place.map_or(word, |place| place.rsplit_once('@').map_or(place, |(_, host)| host));
    let start = word.strip_suffix(host).unwrap_or_default();
    if let Some((address, port)) = host.rsplit_once(':').filter(|(it, _)| is_v4(it)) {
        return format!("{start}{}:{port}", v4(address));
    }
    if is_v4(host) {
        return format!("{start}{}", v4(host));
    }
    let is_v6 = host.matches(':').count() >= 2 && host.parse::<Ipv6Addr>().is_ok();
    if is_v6 { format!("{start}IP") } else { word.to_owned() }
}

fn is_v4(text: &str) -> bool {
    text.trim_end_matches('.').parse::<Ipv4Addr>().is_ok()
}

/// Keeps the addresses of this host, which identify nobody.
fn v4(text: &str) -> &str {
    if text.starts_with("127.") || text.starts_with("0.0.0.0") { text } else { "IP" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_replaced_and_other_numbers_are_not() {
        for (text, clean) in [
            ("52:54:00:12:34:56", "MAC"),
            ("a 52-54-00-12-34-56.", "a MAC."),
            ("52-54-00-12-34-56", "MAC"),
            ("net/enx525400123456/mtu", "net/enxMAC/mtu"),
            ("tcp:10.1.2.3:7367 silent", "tcp:IP:7367 silent"),
            ("ssh:10.1.2.3: no", "ssh:IP: no"),
            ("ssh:alice@10.1.2.3:22", "ssh:alice@IP:22"),
            ("10.1.2.3", "IP"),
            ("[fd00::1:2]:7367", "[IP]:7367"),
            ("127.0.0.1", "127.0.0.1"),
            ("GPU-123e4567-e89b-12d3-a456-426614174000", "ID"),
            ("123e4567-e89b-12d3-a456-426614174000", "ID"),
            ("0000:65:00.0", "0000:65:00.0"),
            ("0x0000003800000000 0x0000003bffffffff", "0x0000003800000000 0x0000003bffffffff"),
            ("550.54.15", "550.54.15"),
        ] {
            assert_eq!(without_addresses(text), clean);
        }
    }

    #[test]
    fn names_are_replaced_as_words() {
        assert_eq!(
            replace_words("home/anna/x anna annabel", "anna", "user1"),
            "home/user1/x user1 annabel"
        );
        assert_eq!(replace_words("annaanna", "anna", "user1"), "annaanna");
    }
}
