//! Checks that the client's modules form layers: sessions below, the state machine's shell beside,
//! objects above. No module may import one that imports it in turn, directly or indirectly.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn no_modules_import_each_other() {
    let mut imports = Imports::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), None, &mut imports);
    assert!(imports.len() > 25, "the modules were not found: {:?}", imports.keys());
    assert!(
        imports["queue"].contains("session"),
        "the imports were not found: {:?}",
        imports["queue"]
    );
    // Repeatedly removes the modules that import none of the rest. The modules that stay are in a
    // circle, or lead to one.
    loop {
        let left: BTreeSet<_> = imports.keys().cloned().collect();
        imports.retain(|_, of| of.iter().any(|name| left.contains(name)));
        if imports.len() == left.len() {
            break;
        }
    }
    assert!(imports.is_empty(), "these modules import each other: {imports:#?}");
}

/// Notes what the files of a folder import. All files of a module count as one.
fn collect(folder: &Path, module: Option<&str>, imports: &mut Imports) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let module = module.unwrap_or(&stem);
        if path.is_dir() {
            collect(&path, Some(module), imports);
        } else if stem != "lib" && stem != "tests" {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
            let found = imports.entry(module.to_owned()).or_default();
            for name in code.flat_map(|line| line.split("crate::").skip(1)) {
                let name: String =
                    name.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
                if !name.is_empty() && name != module {
                    found.insert(name);
                }
            }
        }
    }
}
