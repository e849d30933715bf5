//! What `penstock run` shows CUDA programs. The node is a small fake that only answers the probe, and CUDA's libraries are empty files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use penstock_link::{Address, Listener, accept_hello};
use penstock_wire::hello::Verdict;

/// How long a probe may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A program with the names of a runtime inside, and with nothing that would run them.
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

struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("penstock-run-cuda-{}-{name}", std::process::id()));
        _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("run")).unwrap();
        fs::create_dir_all(path.join("lib/cuda")).unwrap();
        fs::write(path.join("lib/libpenstock_opencl.so"), "").unwrap();
        let listener = Listener::bind(&Address::Unix(path.join("node.sock"))).unwrap();
        thread::spawn(move || {
            while let Ok(stream) = listener.accept() {
                let deadline = Instant::now() + PATIENCE;
                let Ok(accepted) = accept_hello(stream, None, &|_| true, deadline) else { continue };
                let Ok(stream) = accepted.finish(Verdict::Welcome) else { continue };
                let json = br#"{"host":"fake","version":"0.0.0","uptime_s":61,"sessions":[]}"#;
                let length = u32::try_from(json.len()).unwrap().to_le_bytes();
                _ = stream.write_all_until(&[&length[..], json].concat(), deadline);
            }
        });
        Self(path)
    }

    /// As an installation has CUDA's libraries.
    fn with_cuda(name: &str) -> Self {
        let home = Self::new(name);
        for name in ["libcuda.so.1", "libpenstock_cudapatch.so"] {
            fs::write(home.cuda().join(name), "").unwrap();
        }
        home
    }

    fn cuda(&self) -> PathBuf {
        self.0.join("lib/cuda")
    }

    fn run(&self, program: &[&str], variables: &[(&str, &str)]) -> Output {
        let node = format!("unix:{}", self.0.join("node.sock").display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
        for name in [
            "PENSTOCK_NODES",
            "PENSTOCK_KEY",
            "PENSTOCK_LOG",
            "XDG_CONFIG_HOME",
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
        ] {
            command.env_remove(name);
        }
        command.env("HOME", &self.0).env("XDG_RUNTIME_DIR", self.0.join("run"));
        command
            .env("PENSTOCK_LIB", self.0.join("lib/libpenstock_opencl.so"))
            .env("PENSTOCK_TIMEOUT_MS", "20000");
        command
            .args(["run", "--nodes", &node, "--no-local", "--"])
            .args(program)
            .envs(variables.iter().copied());
        command.output().unwrap()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn compile(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("inside.c"), folder.join("inside"));
    fs::write(&source, INSIDE).unwrap();
    assert!(Command::new("cc").args(["-w", "-o"]).arg(&program).arg(&source).status().unwrap().success());
    program
}

#[test]
fn the_folder_of_cudas_libraries_comes_before_what_the_program_had() {
    let home = Home::with_cuda("path");
    let script = "echo $LD_LIBRARY_PATH ${LD_PRELOAD-unset}";
    let output = home.run(&["sh", "-c", script], &[("LD_LIBRARY_PATH", "/opt/own")]);
    assert_eq!(stdout(&output), format!("{}:/opt/own unset\n", home.cuda().display()), "{}", stderr(&output));
    let output = home.run(&["sh", "-c", script], &[]);
    assert_eq!(stdout(&output), format!("{} unset\n", home.cuda().display()));
    assert_eq!(stderr(&output), "");
}

#[test]
fn without_cudas_libraries_nothing_is_changed() {
    let home = Home::new("none");
    let output = home.run(&["sh", "-c", "echo $LD_LIBRARY_PATH"], &[("LD_LIBRARY_PATH", "/opt/own")]);
    assert_eq!((stdout(&output), stderr(&output)), ("/opt/own\n".to_owned(), String::new()));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_runtime_inside_a_program_is_replaced_and_a_stripped_one_is_named() {
    let home = Home::with_cuda("inside");
    let program = compile(&home.0);
    // An empty file cannot be loaded, which the loader says, and goes on.
    let output = home.run(&[program.to_str().unwrap()], &[]);
    assert_eq!(stdout(&output), format!("{}\n", home.cuda().join("libpenstock_cudapatch.so").display()));
    fs::remove_file(home.cuda().join("libpenstock_cudapatch.so")).unwrap();
    let output = home.run(&[program.to_str().unwrap()], &[]);
    assert_eq!(stdout(&output), "unset\n");
    assert!(stderr(&output).contains("is not there"), "{}", stderr(&output));
    let stripped = home.0.join("stripped");
    assert!(Command::new("strip").arg("-o").arg(&stripped).arg(&program).status().unwrap().success());
    let output = home.run(&[stripped.to_str().unwrap()], &[]);
    assert_eq!(stdout(&output), "unset\n");
    let said = stderr(&output);
    assert!(
        said.lines().count() == 1 && said.contains("it was stripped") && said.contains("-cudart shared"),
        "{said}"
    );
}
