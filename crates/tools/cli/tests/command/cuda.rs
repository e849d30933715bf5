//! What `penstock run` shows CUDA programs. The node is a fake that only answers the probe, and the
//! CUDA libraries are empty files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Home, stderr, stdout};

/// A program with the function names of a CUDA runtime inside. Nothing calls these functions.
const INSIDE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#define HERE __attribute__((noipa, used)) static
HERE int libcudart_static_0123456789(void) { return 1; }
HERE int __cudaRegisterFatBinary(void) { return 2; }
HERE int cudaLogsCurrent(void) { return 3; }
__attribute__((section(".nv_fatbin"), used)) static const char code[] = "device code";
int main(void) {
    const char *preload = getenv("LD_PRELOAD");
    puts(preload ? preload : "unset");
    return 0;
}
"#;

/// A program that needs a library, and prints what is preloaded.
const NEEDING: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    const char *preload = getenv("LD_PRELOAD");
    puts(preload ? preload : "unset");
    return 0;
}
"#;

/// Returns a home with a node, and a directory for our CUDA libraries beside the OpenCL library.
fn new_home(name: &str) -> Home {
    let home = Home::new(name);
    fs::create_dir_all(cuda(&home)).unwrap();
    fs::write(home.path.join("lib/libpenstock_opencl.so"), "").unwrap();
    home.start_fake_node();
    home
}

/// As [`new_home`], with the CUDA libraries of an installation.
fn with_cuda(name: &str) -> Home {
    let home = new_home(name);
    for name in ["libcuda.so.1", "libpenstock_cudapatch.so"] {
        fs::write(cuda(&home).join(name), "").unwrap();
    }
    home
}

fn cuda(home: &Home) -> PathBuf {
    home.path.join("lib/cuda")
}

fn run(home: &Home, program: &[&str], variables: &[(&str, &str)]) -> Output {
    finish(home, home.run_on_fake_node(program), variables)
}

/// As [`run`], with the option `mpi`.
fn run_mpi(home: &Home, mpi: &str, program: &[&str], variables: &[(&str, &str)]) -> Output {
    let node = format!("unix:{}", home.path.join("node.sock").display());
    let mut command = home.penstock(&["run", "--nodes", &node, "--no-local", mpi, "--"]);
    command.args(program);
    finish(home, command, variables)
}

fn finish(home: &Home, mut command: Command, variables: &[(&str, &str)]) -> Output {
    command.env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH");
    command.env("PENSTOCK_LIB", home.path.join("lib/libpenstock_opencl.so"));
    command.envs(variables.iter().copied()).output().unwrap()
}

fn compile(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("inside.c"), folder.join("inside"));
    fs::write(&source, INSIDE).unwrap();
    assert!(
        Command::new("cc")
            .args(["-w", "-o"])
            .arg(&program)
            .arg(&source)
            .status()
            .unwrap()
            .success()
    );
    program
}

#[test]
fn the_folder_of_cudas_libraries_comes_before_what_the_program_had() {
    let home = with_cuda("path");
    let script = "echo $LD_LIBRARY_PATH ${LD_PRELOAD-unset}";
    let output = run(&home, &["sh", "-c", script], &[("LD_LIBRARY_PATH", "/opt/own")]);
    assert_eq!(
        stdout(&output),
        format!("{}:/opt/own unset\n", cuda(&home).display()),
        "{}",
        stderr(&output)
    );
    let output = run(&home, &["sh", "-c", script], &[]);
    assert_eq!(stdout(&output), format!("{} unset\n", cuda(&home).display()));
    assert_eq!(stderr(&output), "");
}

#[test]
fn without_cudas_libraries_nothing_is_changed() {
    let home = new_home("none");
    let output =
        run(&home, &["sh", "-c", "echo $LD_LIBRARY_PATH"], &[("LD_LIBRARY_PATH", "/opt/own")]);
    assert_eq!((stdout(&output), stderr(&output)), ("/opt/own\n".to_owned(), String::new()));
}

#[test]
fn a_runtime_in_a_folder_that_the_program_names_is_replaced() {
    let home = with_cuda("named");
    let theirs = home.path.join("toolkit");
    fs::create_dir_all(&theirs).unwrap();
    fs::write(home.path.join("empty.c"), "").unwrap();
    fs::write(home.path.join("named.c"), NEEDING).unwrap();
    let cc = |made: &Path, arguments: &[&str]| {
        let mut command = Command::new("cc");
        command.current_dir(&home.path).arg("-o").arg(made).args(arguments);
        assert!(command.status().unwrap().success());
    };
    let soname = "-Wl,-soname,libcudart.so.13";
    for folder in [&theirs, &cuda(&home)] {
        let made = folder.join("libcudart.so.13");
        cc(&made, &["-shared", "-fPIC", "empty.c", soname]);
    }
    let ours = cuda(&home).join("libcudart.so.13").display().to_string();
    // The loader looks into a folder of the newer kind after `LD_LIBRARY_PATH`.
    for (tags, preloaded) in [("disable", ours.as_str()), ("enable", "unset")] {
        let program = home.path.join(tags);
        let named = format!("-Wl,--no-as-needed,--{tags}-new-dtags,-rpath,$ORIGIN/toolkit");
        cc(&program, &["named.c", &named, "toolkit/libcudart.so.13"]);
        let output = run(&home, &[program.to_str().unwrap()], &[]);
        assert_eq!(stdout(&output), format!("{preloaded}\n"), "{}", stderr(&output));
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_runtime_inside_a_program_is_replaced_and_a_stripped_one_is_named() {
    let home = with_cuda("inside");
    let program = compile(&home.path);
    // The loader cannot load the empty file. It says so and goes on.
    let output = run(&home, &[program.to_str().unwrap()], &[]);
    assert_eq!(
        stdout(&output),
        format!("{}\n", cuda(&home).join("libpenstock_cudapatch.so").display())
    );
    fs::remove_file(cuda(&home).join("libpenstock_cudapatch.so")).unwrap();
    let output = run(&home, &[program.to_str().unwrap()], &[]);
    assert_eq!(stdout(&output), "unset\n");
    assert!(stderr(&output).contains("is not there"), "{}", stderr(&output));
    let stripped = home.path.join("stripped");
    assert!(
        Command::new("strip").arg("-o").arg(&stripped).arg(&program).status().unwrap().success()
    );
    let output = run(&home, &[stripped.to_str().unwrap()], &[]);
    assert_eq!(stdout(&output), "unset\n");
    let said = stderr(&output);
    assert!(
        said.lines().count() == 1
            && said.contains("it was stripped")
            && said.contains("-cudart shared"),
        "{said}"
    );
}

/// Compiles a program that imports a function of MPI, and the library that has the function.
fn compile_ranks(folder: &Path) -> PathBuf {
    let (library, program) = (folder.join("libranks.so"), folder.join("ranks"));
    let main = "int MPI_Init(int *, char ***);\n\
        int main(int count, char **all) { return MPI_Init(&count, &all); }\n";
    fs::write(folder.join("library.c"), "int MPI_Init(void *a, void *b) { return a == b; }\n")
        .unwrap();
    fs::write(folder.join("ranks.c"), main).unwrap();
    let cc = |target: &Path, arguments: &[&str]| {
        let mut compiler = Command::new("cc");
        compiler.current_dir(folder).arg("-o").arg(target).args(arguments);
        assert!(compiler.status().unwrap().success());
    };
    cc(&library, &["-shared", "-fPIC", "library.c"]);
    cc(&program, &["ranks.c", library.to_str().unwrap()]);
    program
}

#[test]
fn the_library_for_mpi_is_preloaded_for_the_mpi_that_is_named_or_imported() {
    let home = with_cuda("mpi");
    let library = cuda(&home).join("libpenstock_mpi_mpich.so");
    let program = compile_ranks(&home.path);
    let script = ["sh", "-c", "echo ${LD_PRELOAD-unset}"];
    let output = run_mpi(&home, "--mpi=mpich", &script, &[]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("libpenstock_mpi_mpich.so"), "{}", stderr(&output));
    fs::write(&library, "").unwrap();
    let output = run_mpi(&home, "--mpi=mpich", &script, &[("LD_PRELOAD", "/nonexistent/own.so")]);
    let both = format!("{}:/nonexistent/own.so\n", library.display());
    assert_eq!(stdout(&output), both, "{}", stderr(&output));

    // The shell does not call MPI, but the program does. The loader cannot load the empty file.
    let output = run_mpi(&home, "--mpi", &script, &[]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("--mpi=openmpi or --mpi=mpich"), "{}", stderr(&output));
    let output = run_mpi(&home, "--mpi", &[program.to_str().unwrap()], &[]);
    let name = library.display().to_string();
    assert!(stderr(&output).contains(&name), "{}", stderr(&output));
}
