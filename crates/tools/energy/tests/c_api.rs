//! Tests of the C interface: programs in C and C++ are built with the shared library and the
//! header, as users do it.

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::{Mill, Tree, compile, stub};

/// Returns the folder in which cargo puts the shared library for this test.
fn library_directory() -> PathBuf {
    let directory = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let candidates = [directory.clone(), directory.parent().unwrap().to_path_buf()];
    let found = candidates.into_iter().find(|it| it.join("libpenstock_energy.so").exists());
    found.unwrap_or_else(|| panic!("no libpenstock_energy.so at {}", directory.display()))
}

#[test]
fn a_c_program_measures_what_was_injected_and_every_misuse_has_its_code() {
    let tree = Tree::new();
    let program = tree.path().join("program");
    let (include, library) = (concat!(env!("CARGO_MANIFEST_DIR"), "/include"), library_directory());
    compile(&[
        "-o",
        program.to_str().unwrap(),
        &stub("program.c"),
        &format!("-I{include}"),
        &format!("-L{}", library.display()),
        "-lpenstock_energy",
        &format!("-Wl,-rpath,{}", library.display()),
        "-lm",
    ]);
    let zone = tree.zone("intel-rapl:0", "package-0", 1_000_000_000);
    tree.pmu(&[("energy-pkg", 2)], &[0]);
    let model =
        tree.put("model.toml", "busy_core_watts = 1\nidle_core_watts = 1\nbase_watts = 1\n");
    let mill = Mill::start(vec![(zone, 1_000_000)]);
    let mut child = Command::new(&program)
        .arg(tree.path())
        .arg(&model)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().expect("the program ended").unwrap();
    assert_eq!(next(), "opened");
    let mut zone = mill.stop().remove(0);
    input.write_all(b"\n").unwrap();
    assert_eq!(next(), "started");
    zone.add(2_500_000);
    input.write_all(b"\n").unwrap();
    assert_eq!(next(), "so far 2.5");
    assert_eq!(next(), "updated");
    zone.add(10_000_000);
    input.write_all(b"\n").unwrap();
    assert_eq!(next(), "total 12.5 J of package-0");
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    for line in [
        "powercap package-0: measured",
        "perf package-0: dead_counter",
        "nvml gpu: no_library",
        "end",
    ] {
        assert!(rest.iter().any(|it| it == line), "no {line:?} in {rest:#?}");
    }
    assert!(child.wait().unwrap().success(), "{rest:#?}");
}

#[test]
fn the_header_is_c_plus_plus_too() {
    let tree = Tree::new();
    let source = tree.put(
        "x.cpp",
        "#include <penstock_energy.h>\nint f() { return penstock_energy_close != nullptr; }\n",
    );
    let status = Command::new("c++")
        .args([
            "-std=c++11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Waddress",
            "-Wno-address",
            "-fsyntax-only",
        ])
        .arg(concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include"))
        .arg(source)
        .status();
    assert!(status.expect("the tests need a C++ compiler").success());
}

#[test]
fn every_function_of_the_header_is_in_the_library_and_no_other() {
    let header =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/include/penstock_energy.h"))
            .unwrap();
    let code: String = header.lines().skip_while(|line| !line.starts_with("#ifndef")).collect();
    let names = |text: &str, end: char| -> std::collections::BTreeSet<String> {
        let rests = text.split("penstock_energy_").skip(1);
        let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
        rests
            .filter_map(|rest| {
                let name: String = rest.chars().take_while(|&c| is_name(c)).collect();
                rest.get(name.len()..)?.starts_with(end).then_some(name)
            })
            .collect()
    };
    let declared = names(&code, '(');
    let library = library_directory().join("libpenstock_energy.so");
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap();
    let exported = names(&String::from_utf8(output.stdout).unwrap(), '\n');
    assert!(declared.len() > 10, "{declared:?}");
    assert_eq!(declared, exported);
}
