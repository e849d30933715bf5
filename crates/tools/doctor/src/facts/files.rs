//! How facts read common forms of files: numbers, lists of numbers, libraries.

use crate::tree::{Answers, Tree, keep};

/// Directories in which the dynamic loader of the usual systems looks for libraries.
const LIBRARY_DIRECTORIES: [&str; 10] = [
    "usr/local/lib",
    "usr/local/lib64",
    "lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "usr/lib64",
    "lib",
    "usr/lib",
];

/// Returns where the dynamic loader finds a library, without symbolic links.
pub fn find_library(tree: &Tree, answers: &Answers, name: &str) -> Option<String> {
    if name.contains('/') {
        return tree.target(name);
    }
    let variable = answers.get("variable.LD_LIBRARY_PATH").unwrap_or_default();
    let named = variable.split(':').filter(|path| path.starts_with('/')).map(str::to_owned);
    let configured = tree.list("etc/ld.so.conf.d").into_iter().filter(|it| it.ends_with(".conf"));
    let configured = configured.flat_map(|file| {
        let text = tree.read(&format!("etc/ld.so.conf.d/{file}"), directories).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    let usual = LIBRARY_DIRECTORIES.into_iter().map(str::to_owned);
    let mut places = named.chain(configured).chain(usual);
    places.find_map(|directory| tree.target(&format!("{directory}/{name}")))
}

/// Keeps the lines that are absolute paths.
fn directories(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| line.starts_with('/'));
    lines.map(keep::printable).collect::<Vec<_>>().join("\n")
}

/// Reads a file of one number.
pub fn number(tree: &Tree, path: &str) -> Option<i64> {
    tree.read(path, keep::line)?.trim().parse().ok()
}

/// Reads a file of one number that is not negative.
pub fn count(tree: &Tree, path: &str) -> Option<u64> {
    number(tree, path).and_then(|it| u64::try_from(it).ok())
}

/// Returns the numbers of a list such as `0-3,8`. Leaves out numbers above 65,535.
pub fn number_list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<u16>().ok()?, last.trim().parse::<u16>().ok()?);
        Some((first..=last).map(u32::from))
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// Keeps the size of `/dev/shm` (`dev-shm-bytes: 65536`), and whether the root directory is on a
/// disk (`root-device: disk`). Other lines may name other hosts.
pub fn mounts(text: &str) -> String {
    let made = keep::keys(text, &["dev-shm-bytes", "root-device"]);
    if !made.is_empty() {
        return made; // This filter has made the text.
    }
    let field = |line: &str, index: usize| line.split_whitespace().nth(index).map(str::to_owned);
    let at = |place: &str| text.lines().find(|line| field(line, 1).as_deref() == Some(place));
    let mut lines = Vec::new();
    let options = at("/dev/shm").and_then(|line| field(line, 3)).unwrap_or_default();
    if let Some(bytes) = options.split(',').find_map(|it| size(it.strip_prefix("size=")?)) {
        lines.push(format!("dev-shm-bytes: {bytes}"));
    }
    let root = at("/").and_then(|line| field(line, 0)).unwrap_or_default();
    if ["/dev/vd", "/dev/sd", "/dev/nvme", "/dev/xvd"].iter().any(|disk| root.starts_with(disk)) {
        lines.push("root-device: disk".to_owned());
    }
    lines.join("\n")
}

/// Reads a size such as `65536k` as bytes.
fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['k', 'm', 'g']);
    let unit = match text.strip_prefix(digits)? {
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => 1,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_numbers_are_read_as_the_kernel_writes_them() {
        assert_eq!(number_list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(number_list(""), []);
        assert_eq!(number_list("5-2,x,9-99999999999"), []);
    }
}
