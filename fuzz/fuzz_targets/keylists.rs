//! Any text as a list of known nodes or authorized clients: no panic, and a list that is read is
//! written as it was.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use penstock_tls::{AuthorizedClients, KnownNodes};

fuzz_target!(|text: &str| {
    let path = Path::new("list");
    let same = |written: String| {
        let ends = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        assert_eq!(written, format!("{text}{ends}"));
    };
    if let Ok(nodes) = KnownNodes::parse(path, text) {
        same(nodes.to_string());
        for (name, key) in nodes.iter() {
            assert_eq!(nodes.key_of(name), Some(*key));
        }
    }
    if let Ok(clients) = AuthorizedClients::parse(path, text) {
        same(clients.to_string());
        for client in clients.iter() {
            assert_eq!(clients.with_key(&client.key), Some(client));
        }
    }
});
