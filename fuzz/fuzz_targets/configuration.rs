//! Any text as what people and batch systems write: node lists, Slurm's host lists, the pool's file.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use penstock_client::config::{Surroundings, file, nodes, slurm};

fuzz_target!(|text: &str| {
    let surroundings = Surroundings::new("host", 1000, |_| None);
    _ = nodes::read_list(text, &surroundings);
    _ = slurm::expand(text);
    _ = file::parse(text, Path::new("pool.toml"), &surroundings);
});
