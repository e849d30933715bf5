//! The domains that libvirt defines on this host.

use crate::tree::Tree;

const DIRECTORY: &str = "etc/libvirt/qemu";

#[derive(Clone, Debug)]
pub struct Domain {
    pub path: String,
    pub tags: Vec<Tag>,
}

/// An element of the domain's XML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Names of the element and of those around it, such as `domain/devices/hostdev`.
    pub path: String,
    pub attributes: Vec<(String, String)>,
}

impl Tag {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

impl Domain {
    /// Reads the XML of a domain. Returns `None` if it is none.
    pub fn of_xml(path: &str, xml: &str) -> Option<Self> {
        let starts = |element: &Element<'_>| is_named(element.element, "domain");
        elements(xml).first().filter(|element| starts(element))?;
        Some(Self::of_kept(path, &kept(xml)))
    }

    /// Makes a domain of lines that [`kept`] wrote.
    fn of_kept(path: &str, lines: &str) -> Self {
        Self { path: path.to_owned(), tags: lines.lines().filter_map(tag).collect() }
    }

    /// Returns all elements with this path.
    pub fn all<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Tag> {
        self.tags.iter().filter(move |tag| tag.path == path)
    }

    pub fn has(&self, path: &str) -> bool {
        self.all(path).next().is_some()
    }

    /// Returns the elements of the host's PCI devices.
    pub fn passed(&self) -> impl Iterator<Item = &Tag> {
        self.all(HOST_DEVICE).filter(|tag| tag.get("type") == Some("pci"))
    }

    pub fn passes_devices(&self) -> bool {
        self.passed().next().is_some()
    }

    /// Returns the number of virtual processors.
    pub fn cpus(&self) -> Option<u32> {
        self.all(CPUS).next()?.get("size")?.parse().ok()
    }

    /// Returns the bytes of the domain's memory.
    pub fn memory_bytes(&self) -> Option<u64> {
        let tag = self.all(MEMORY).next()?;
        let unit = match tag.get("unit").unwrap_or("KiB") {
            "b" | "bytes" => 1,
            "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "k" | "KiB" => 1 << 10,
            "M" | "MiB" => 1 << 20,
            "G" | "GiB" => 1 << 30,
            _ => return None,
        };
        tag.get("size")?.parse::<u64>().ok()?.checked_mul(unit)
    }

    /// Returns the addresses of the host's PCI devices.
    pub fn addresses(&self) -> Vec<String> {
        let number = |tag: &Tag, name: &str| {
            let text = tag.get(name).unwrap_or("0");
            match text.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16).ok(),
                None => text.parse().ok(),
            }
        };
        let address = |tag: &Tag| {
            Some(format!(
                "{:04x}:{:02x}:{:02x}.{:x}",
                number(tag, "domain")?,
                number(tag, "bus")?,
                number(tag, "slot")?,
                number(tag, "function")?
            ))
        };
        self.all("domain/devices/hostdev/source/address").filter_map(address).collect()
    }
}

/// Elements whose content is a number, which becomes an attribute `size`: the domain's memory and
/// the number of its virtual processors.
const MEMORY: &str = "domain/memory";
const CPUS: &str = "domain/vcpu";

pub const HOST_DEVICE: &str = "domain/devices/hostdev";

/// Elements that checks know.
const KNOWN: [&str; 13] = [
    MEMORY,
    "domain/cpu",
    CPUS,
    "domain/cputune/vcpupin",
    "domain/numatune/memory",
    "domain/memoryBacking/hugepages",
    HOST_DEVICE,
    "domain/devices/hostdev/source/address",
    "domain/devices/iommu",
    "domain/devices/iommu/driver",
    "domain/devices/interface",
    "domain/devices/interface/model",
    "domain/devices/interface/driver",
];

/// Attributes that checks know.
const ATTRIBUTES: [&str; 17] = [
    "unit",
    "mode",
    "type",
    "managed",
    "domain",
    "bus",
    "slot",
    "function",
    "nodeset",
    "cpuset",
    "vcpu",
    "model",
    "intremap",
    "caching_mode",
    "iotlb",
    "iommu",
    "ats",
];

/// Reads the domains that have a PCI device of the host.
pub fn read(tree: &Tree) -> Vec<Domain> {
    let files = tree.list(DIRECTORY).into_iter().filter(|name| name.ends_with(".xml"));
    let domain = |name: String| {
        let path = format!("{DIRECTORY}/{name}");
        let domain = Domain::of_kept(&path, &tree.read(&path, kept)?);
        Some(domain).filter(Domain::passes_devices)
    };
    files.filter_map(domain).collect()
}

/// Reads a line that [`kept`] wrote.
fn tag(line: &str) -> Option<Tag> {
    let mut words = line.split(' ');
    let path = words.next()?.to_owned();
    let pair = |word: &str| {
        let (name, value) = word.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    Some(Tag { path, attributes: words.filter_map(pair).collect() })
}

/// Keeps a line for each known element with its known attributes. All names, identifiers and
/// addresses of networks are left out.
fn kept(text: &str) -> String {
    if !text.trim_start().starts_with('<') {
        // This filter has made the text.
        let is_known = |line: &&str| KNOWN.contains(&line.split(' ').next().unwrap_or_default());
        return text.lines().filter(is_known).collect::<Vec<_>>().join("\n");
    }
    // A domain's elements are at most some ten deep.
    const DEPTH_MAX: usize = 64;
    let mut above: Vec<&str> = Vec::new();
    let mut lines = Vec::new();
    for Element { element, is_alone, content } in elements(text) {
        if element.starts_with('/') {
            above.pop();
            continue;
        }
        let name = element.split(|letter: char| letter.is_whitespace()).next().unwrap_or_default();
        above.push(name);
        let path = above.join("/");
        if KNOWN.contains(&path.as_str()) {
            let size = Some(content.trim()).filter(|it| is_number(it));
            let size = size.filter(|_| [MEMORY, CPUS].contains(&path.as_str()));
            let size = size.map(|size| format!(" size={size}")).unwrap_or_default();
            lines.push(format!("{path}{}{size}", attributes(element)));
        }
        if is_alone || above.len() > DEPTH_MAX {
            above.pop();
        }
    }
    lines.join("\n")
}

/// Whether the text between the angle brackets starts an element with this name.
fn is_named(element: &str, name: &str) -> bool {
    element.split(char::is_whitespace).next() == Some(name)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|digit| digit.is_ascii_digit())
}

/// The start or the end of an element.
struct Element<'a> {
    /// Text between the angle brackets.
    element: &'a str,
    /// Whether the element has no content.
    is_alone: bool,
    /// Text up to the next element.
    content: &'a str,
}

fn elements(text: &str) -> Vec<Element<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, from)) = rest.split_once('<') {
        if let Some(comment) = from.strip_prefix("!--") {
            rest = comment.split_once("-->").map_or("", |(_, after)| after);
            continue;
        }
        let Some((element, after)) = from.split_once('>') else { break };
        rest = after;
        if !element.starts_with(['?', '!']) {
            let content = after.split('<').next().unwrap_or_default();
            found.push(Element {
                element: element.trim_end_matches('/'),
                is_alone: element.ends_with('/'),
                content,
            });
        }
    }
    found
}

/// Returns ` name=value` for each known attribute.
fn attributes(element: &str) -> String {
    let mut text = String::new();
    let mut rest = element.trim_start_matches(|letter: char| !letter.is_whitespace());
    while let Some((name, after)) = rest.split_once('=') {
        let after = after.trim_start();
        let Some(quote) = after.chars().next().filter(|it| *it == '\'' || *it == '"') else {
            break;
        };
        let Some((value, next)) = after.get(1..).and_then(|it| it.split_once(quote)) else { break };
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.,:^".contains(letter);
        let name = name.trim();
        if ATTRIBUTES.contains(&name) && value.len() <= 64 && value.chars().all(is_plain) {
            text.push_str(&format!(" {name}={value}"));
        }
        rest = next;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_keeps_what_the_checks_need() {
        let text = "<domain type='kvm'>\n<name>secret</name><memory unit='GiB'>16</memory>\
                    <!-- <cpu mode='x'/> --><cpu mode=\"host-model\" secret='1'/><devices>\
                    <hostdev mode='subsystem' type='pci' managed='yes'><source>\
                    <address bus='0x65'/></source></hostdev></devices></domain>";
        let lines = kept(text);
        assert_eq!(
            lines,
            "domain/memory unit=GiB size=16\n\
             domain/cpu mode=host-model\n\
             domain/devices/hostdev mode=subsystem type=pci managed=yes\n\
             domain/devices/hostdev/source/address bus=0x65"
        );
        assert_eq!(kept(&lines), lines);
        for broken in ["<", "<a", "<a b", "<a b=", "<a b='", "</", "<!--", "<a/></a></a>"] {
            assert_eq!(kept(broken), "");
        }
    }
}
