//! Exported symbols: every symbol of NVIDIA's libraries with its version, and no other.

#![allow(clippy::macro_metavars_in_unsafe, reason = "calls have values, not code")]

mod common;

use std::collections::BTreeSet;
use std::process::Command;

use penstock_cudart::api::table::{SERVED, UNSERVED};

fn list(major: u32) -> BTreeSet<String> {
    let path = common::root().join(format!("tools/cuda/cudart-{major}.symbols"));
    std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn each_library_exports_every_symbol_of_its_version_and_no_other() {
    for major in [12, 13] {
        let library = common::link().join(format!("libcudart.so.{major}"));
        let output = Command::new("nm")
            .args(["--dynamic", "--defined-only", "--with-symbol-versions"])
            .arg(&library)
            .output()
            .unwrap();
        assert!(output.status.success());
        let node = format!("@@libcudart.so.{major}");
        let exported: BTreeSet<String> = String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .filter(|line| line.contains(" T "))
            .map(|line| {
                let name = line.split_whitespace().last().unwrap();
                name.strip_suffix(&node)
                    .unwrap_or_else(|| panic!("{name} has no symbol version"))
                    .to_owned()
            })
            .collect();
        assert_eq!(exported, list(major));
        let dynamic = Command::new("readelf").arg("--dynamic").arg(&library).output().unwrap();
        let dynamic = String::from_utf8(dynamic.stdout).unwrap();
        assert!(dynamic.contains(&format!("Library soname: [libcudart.so.{major}]")), "{dynamic}");
    }
}

#[test]
fn the_table_has_every_symbol_of_both_versions_once() {
    let all: BTreeSet<String> = list(12).union(&list(13)).cloned().collect();
    let table: Vec<&str> = SERVED.iter().chain(UNSERVED).map(|(name, _)| *name).collect();
    let set: BTreeSet<String> = table.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(set, all);
    assert_eq!(table.len(), set.len());
}

#[test]
fn without_a_driver_calls_fail_and_do_not_end_the_program() {
    // This needs a separate program, because the libraries of this process must not be found.
    let alone = common::folder().join("alone");
    std::fs::create_dir_all(&alone).unwrap();
    for name in ["libcudart.so.12", "libcudart.so.13"] {
        std::fs::copy(common::link().join(name), alone.join(name)).unwrap();
    }
    let source = alone.join("program.c");
    std::fs::write(
        &source,
        "int cudaGetDeviceCount(int *); int cudaMalloc(void **, unsigned long); int cudaGetLastError(void); int cudaDriverGetVersion(int *);\n\
         int main(void) { int count = 7, version = 7; void *memory;\n\
         int no_driver = cudaGetDeviceCount(&count), no_memory = cudaMalloc(&memory, 4), last = cudaGetLastError();\n\
         int asked = cudaDriverGetVersion(&version);\n\
         return !(no_driver == 35 && count == 0 && no_memory == 35 && last == 35 && asked == 0 && version == 0); }\n",
    )
    .unwrap();
    for major in [12, 13] {
        let program = alone.join(format!("program-{major}"));
        let library = format!("-l:libcudart.so.{major}");
        common::run(
            Command::new("cc")
                .arg("-o")
                .arg(&program)
                .arg(&source)
                .arg("-L")
                .arg(&alone)
                .arg(library)
                .arg("-Wl,-rpath,$ORIGIN"),
        );
        let output = Command::new(&program).env_remove("LD_LIBRARY_PATH").output().unwrap();
        // On a host with its own driver there is nothing to test.
        if std::path::Path::new("/usr/lib/x86_64-linux-gnu/libcuda.so.1").exists() {
            continue;
        }
        assert!(output.status.success(), "{output:?}");
    }
}
