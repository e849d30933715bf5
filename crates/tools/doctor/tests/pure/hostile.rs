//! A copied tree may contain anything. No read leaves it, and none is without a limit.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use crate::common::{Folder, base, findings};
use penstock_doctor::Facts;
use penstock_doctor::limits::{ENTRIES_MAX, FILE_BYTES_MAX, LINKS_MAX, TREE_BYTES_MAX};
use penstock_doctor::tree::{Listing, ListingError, Tree, keep};
use penstock_trial::in_time;
use rustix::fs::{CWD, FileType, Mode, mknodat};

fn kept(text: &str) -> String {
    text.to_owned()
}

#[test]
fn links_lead_only_to_places_in_the_tree() {
    let folder = Folder::new("links");
    fs::write(folder.path().join("secret"), "outside").unwrap();
    let root = folder.path().join("tree");
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("passwd"), "inside").unwrap();
    let outside = folder.path().join("secret");
    symlink(&outside, root.join("absolute")).unwrap();
    symlink("../../../../../../secret", root.join("a/relative")).unwrap();
    symlink("../secret", root.join("above")).unwrap();
    symlink(folder.path(), root.join("a/b/directory")).unwrap();
    symlink("/passwd", root.join("a/root")).unwrap();
    symlink("../../../../../passwd", root.join("a/b/up")).unwrap();
    let tree = Tree::open(&root).unwrap();
    for path in
        ["absolute", "a/relative", "above", "a/b/directory/secret", "../secret", "a/../../secret"]
    {
        assert_eq!(tree.read(path, kept), None, "{path}");
        assert!(!tree.exists(path) && tree.node(path).is_none(), "{path}");
    }
    // The root of the tree counts as `/`, and `..` stays in it.
    for path in ["a/root", "a/b/up", "/passwd", "../../passwd"] {
        assert_eq!(tree.read(path, kept).as_deref(), Some("inside"), "{path}");
        assert_eq!(tree.target(path).as_deref(), Some("passwd"), "{path}");
    }
}

#[test]
fn cycles_and_long_chains_of_links_end() {
    let folder = Folder::new("cycles");
    let root = folder.path();
    symlink("b", root.join("a")).unwrap();
    symlink("a", root.join("b")).unwrap();
    symlink(".", root.join("self")).unwrap();
    symlink("grow/grow/x", root.join("grow")).unwrap();
    fs::write(root.join("end"), "x").unwrap();
    symlink("end", root.join("link0")).unwrap();
    for number in 1..=LINKS_MAX {
        symlink(format!("link{}", number - 1), root.join(format!("link{number}"))).unwrap();
    }
    let tree = Tree::open(root).unwrap();
    assert!(!tree.exists("a") && !tree.exists("grow/x"));
    assert!(tree.exists(&format!("link{}", LINKS_MAX - 1)));
    assert!(!tree.exists(&format!("link{LINKS_MAX}")));
    assert!(tree.exists(&"self/".repeat(LINKS_MAX)));
    assert!(!tree.exists(&"self/".repeat(LINKS_MAX + 1)));
}

#[test]
fn only_regular_files_are_read_and_only_so_far() {
    let folder = Folder::new("kinds");
    let root = folder.path();
    let fifo = root.join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    fs::create_dir(root.join("directory")).unwrap();
    File::create(root.join("large")).unwrap().set_len(1 << 30).unwrap();
    let tree = Tree::open(root).unwrap();
    let reads = usize::try_from(TREE_BYTES_MAX).unwrap() / FILE_BYTES_MAX;
    in_time("files that do not end", || {
        for path in ["fifo", "socket", "directory", "missing", "large/below", "", "/", "\0", "a\0b"]
        {
            assert_eq!(tree.read(path, kept), None, "{path}");
        }
        for _ in 0..reads {
            assert_eq!(tree.read("large", kept).map(|text| text.len()), Some(FILE_BYTES_MAX));
        }
        // The whole tree has a limit, too.
        assert_eq!(tree.read("large", kept), None);
    });
}

#[test]
fn names_may_be_any_bytes_and_any_number() {
    let folder = Folder::new("names");
    let root = folder.path().join("sys/bus/pci/devices");
    fs::create_dir_all(&root).unwrap();
    fs::write(root.join(OsStr::from_bytes(b"\xff\xfe")), "x").unwrap();
    fs::write(root.join("line\nbreak"), "x").unwrap();
    fs::write(root.join("0000:00:00.0"), "a file, not a directory").unwrap();
    symlink(OsStr::from_bytes(b"\xff"), root.join("0000:00:01.0")).unwrap();
    for number in 0..ENTRIES_MAX {
        File::create(root.join(format!("{number}"))).unwrap();
    }
    let tree = Tree::open(folder.path()).unwrap();
    assert_eq!(tree.list("sys/bus/pci/devices").len(), ENTRIES_MAX);
    findings(&tree);
}

#[test]
fn texts_of_a_tree_cannot_steer_the_terminal() {
    let mut tree = base("guest");
    tree.apply("etc/OpenCL/vendors/x.icd hex 1b5b324a2f6f70742fff0a").unwrap();
    let found = findings(&Tree::of(tree));
    assert!(found.iter().any(|finding| finding.check == "icd-library"), "{found:?}");
    for finding in found {
        let texts = [finding.place, finding.seen, finding.repair];
        assert!(texts.iter().all(|text| !text.contains(char::is_control)), "{texts:?}");
    }
}

/// Replaces the content of each file of a healthy host with each of these, and reads the facts.
#[test]
fn no_content_makes_the_facts_panic() {
    let contents: [&[u8]; 9] = [
        b"",
        b"\xff\xff\xff\xff",
        b"-1",
        b"18446744073709551615 18446744073709551615 18446744073709551615",
        b"340282366920938463463374607431768211456",
        b"0xffffffffffffffff 0x0000000000000000 0xffffffffffffffff",
        b"a: b: c = d\n: \n=\n[\n<a b='",
        b"0-65535,0-65535",
        b"nan inf",
    ];
    let text = base("host").to_string()
        + &base("passing").to_string().replacen("penstock-tree 1\n", "", 1);
    let names: Vec<&str> =
        text.lines().filter_map(|line| line.split_once(" =")).map(|it| it.0).collect();
    assert!(names.len() > 100, "only {} files", names.len());
    for content in contents {
        let hex: String = content.iter().map(|byte| format!("{byte:02x}")).collect();
        for chosen in 0..3 {
            let mut tree = base("host");
            tree.apply(&text.replacen("penstock-tree 1\n", "", 1)).unwrap();
            for (number, name) in names.iter().enumerate() {
                // All files at a time, or every second one.
                if chosen == 2 || number % 2 == chosen {
                    tree.apply(&format!("{name} hex {hex}")).unwrap();
                }
            }
            Facts::read(&Tree::of(tree));
        }
    }
}

#[test]
fn configuration_spaces_may_lie() {
    let mut endless = vec![0_u8; 0x1000];
    for at in (0x100_usize..0x1000).step_by(4) {
        let next = u32::try_from(if at + 4 < 0x1000 { at + 4 } else { 0x100 }).unwrap();
        endless[at..at + 4].copy_from_slice(&(0x1_0003 | next << 20).to_le_bytes());
    }
    assert!(keep::capabilities(&endless).len() <= 1024);
    let mut cut = vec![0_u8; 0x106];
    cut[0x100..0x104].copy_from_slice(&0x1_000d_u32.to_le_bytes());
    for length in 0..cut.len() {
        assert!(keep::pci_config(&cut[..length]).len() == length);
    }
    assert_eq!(keep::pci_config(&[0xff; 0x2000]), vec![0; 0x1000]);
}

#[test]
fn what_is_no_tree_is_refused() {
    let parse = |text: &str| Listing::parse(&format!("penstock-tree 1\n{text}")).map(|_| ());
    assert_eq!(Listing::parse("").map(|_| ()), Err(ListingError::Head));
    for text in
        ["/etc/passwd = x", "../x = y", "a/../b = x", "a//b = x", "a%2e%2e = x\n./b = x", "%00 = x"]
    {
        assert!(matches!(parse(text), Err(ListingError::Path { .. })), "{text}");
    }
    for text in ["a", "a ? b", "a hex 0", "a hex xy", "a : b", "a : special 99 0 0 0"] {
        assert!(parse(text).is_err(), "{text}");
    }
    let folder = Folder::new("refused");
    let file = folder.path().join("file");
    fs::write(&file, "something else").unwrap();
    let message = Tree::open(&file).unwrap_err().to_string();
    assert!(message.contains("it is no tree of penstock doctor"), "{message}");
    assert!(Tree::open(&folder.path().join("missing")).is_err());
}

/// A tree that is read from a directory can be written as text, whatever is in it.
#[test]
fn odd_names_and_texts_survive_the_text() {
    let folder = Folder::new("odd");
    let vendors = folder.path().join("etc/OpenCL/vendors");
    fs::create_dir_all(&vendors).unwrap();
    fs::write(vendors.join("a b%\n= c.icd"), "|| /opt/x y.so ").unwrap();
    fs::write(folder.path().join("etc/group"), "render:x:1:\nvideo:x:2:\n").unwrap();
    symlink("a b%\n= c.icd", vendors.join("link\n.icd")).unwrap();
    let tree = Tree::open(folder.path()).unwrap().recorded();
    let expected = findings(&tree);
    let record = tree.into_record();
    assert_eq!(Listing::parse(&record.to_string()).unwrap(), record);
    assert_eq!(findings(&Tree::of(record)), expected);
    assert!(expected.iter().any(|finding| finding.seen.contains("names || /opt/x y.so")));
}

/// A tree that is written into a directory stays in the directory.
#[test]
fn a_tree_is_written_only_below_its_directory() {
    let folder = Folder::new("written");
    let target = folder.path().join("outside");
    fs::create_dir(&target).unwrap();
    let text = format!("penstock-tree 1\na -> {}\na/b = x\n", target.display());
    let listing = Listing::parse(&text).unwrap();
    listing.write_into(&folder.path().join("tree")).unwrap();
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    // A directory with files in it is left alone.
    assert!(listing.write_into(folder.path()).is_err());
}
