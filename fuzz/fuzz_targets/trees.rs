//! Any text as a copied tree of another host: no panic, and a copy of the copy is the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_doctor::collect::collect;
use penstock_doctor::tree::Listing;
use penstock_doctor::{Facts, Tree, examine};

fuzz_target!(|text: &str| {
    let mut listing = Listing::default();
    _ = listing.apply(text.strip_prefix("penstock-tree 1\n").unwrap_or(text));
    assert_eq!(Listing::parse(&listing.to_string()).as_ref(), Ok(&listing));
    let tree = Tree::of(listing.clone()).recorded();
    let findings = examine(&Facts::read(&tree));
    let copied = examine(&Facts::read(&Tree::of(tree.into_record())));
    assert_eq!(copied, findings);
    _ = collect(Tree::of(listing), &[]);
});
