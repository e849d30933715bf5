//! Programs with a runtime inside that has the names of NVIDIA's, and a library that replaces it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use penstock_cuda_patch::program::{Runtime, inspect, wants_machine_code};

/// Each function returns a number that identifies it. `early` is the constructor's result.
const PROGRAM: &str = r#"
#include <stdio.h>
#define INSIDE __attribute__((noipa, used)) static
INSIDE int libcudart_static_0123456789(void) { return 1; }
INSIDE int __cudaRegisterFatBinary(void *binary) { return binary ? 7 : libcudart_static_0123456789(); }
INSIDE int cudaMalloc(void **memory, unsigned long bytes) { *memory = 0; return (int)bytes; }
INSIDE int cudaOnlyInside(void) { __asm__ volatile(""); return 5; }
INSIDE int MARKER(void) { __asm__ volatile(""); return 1; }
#ifdef SHORT
__asm__(".type cudaShort, @function\ncudaShort: " SHORT "\n.size cudaShort, . - cudaShort\n1: ret");
#endif
#ifdef SECTION
__attribute__((section(".nv_fatbin"), used)) static const char code[] = "device code";
#endif
static int early;
__attribute__((constructor)) static void start(void) { early = __cudaRegisterFatBinary(&early); }
int main(void) {
    void *memory;
    printf("%d %d %d %d\n", early, cudaMalloc(&memory, 3), cudaOnlyInside(), MARKER());
    return 0;
}
"#;

const LIBRARY: &str = r"
int __cudaRegisterFatBinary(void *binary) { return binary ? 100 + VERSION : 0; }
int cudaMalloc(void **memory, unsigned long bytes) { *memory = 0; return 1000 + (int)bytes; }
int cudaShort(void) { return 0; }
";

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

/// Returns the crate's newest archive, which is beside the tests or one folder up.
fn archive() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let places = tests.ancestors().skip(1).take(2).filter_map(|folder| fs::read_dir(folder).ok());
    let made = |path: &PathBuf| {
        fs::metadata(path).and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    };
    let files = places.flatten().filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libpenstock_cuda_patch")
            && path.extension().is_some_and(|extension| extension == "a")
    };
    files.filter(ours).max_by_key(made).expect("the archive is built with its tests")
}

/// Returns a folder with the linked libraries.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("inside");
        _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        fs::copy(archive(), folder.join("libpenstock_cuda_patch.a")).unwrap();
        let link = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tools/cuda/link.sh");
        run(Command::new(link).arg(&folder).arg("patch"));
        fs::write(folder.join("library.c"), LIBRARY).unwrap();
        for major in [12, 13] {
            run(Command::new("cc")
                .args(["-shared", "-fPIC", &format!("-DVERSION={major}"), "-o"])
                .arg(folder.join(format!("cuda/libcudart.so.{major}")))
                .arg(folder.join("library.c")));
        }
        folder
    })
}

fn program(name: &str, options: &[&str]) -> PathBuf {
    let (source, path) = (folder().join(format!("{name}.c")), folder().join(name));
    fs::write(&source, PROGRAM).unwrap();
    run(Command::new("cc").args(["-O1", "-w"]).args(options).arg("-o").arg(&path).arg(&source));
    path
}

fn preloaded(program: &Path) -> String {
    run(Command::new(program).env("LD_PRELOAD", folder().join("cuda/libpenstock_cudapatch.so")))
}

#[test]
#[cfg(target_arch = "x86_64")]
fn functions_are_replaced_before_the_programs_constructors_in_every_kind_of_program() {
    for (name, version, marker, kind) in [
        ("moved-13", 13, "cudaLogsCurrent", "-pie"),
        ("moved-12", 12, "cudaThreadExit", "-pie"),
        ("fixed-13", 13, "cudaMemGetDefaultMemPool", "-no-pie"),
    ] {
        let marker = format!("-DMARKER={marker}");
        let program =
            program(name, &[kind, if kind == "-pie" { "-fPIE" } else { "-fno-pie" }, &marker]);
        assert_eq!(run(&mut Command::new(&program)), "7 3 5 1\n");
        // A function that the library lacks stays as it was.
        assert_eq!(preloaded(&program), format!("{} 1003 5 1\n", 100 + version), "{name}");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn functions_without_room_for_a_jump_stay_where_they_only_return_and_are_named_where_not() {
    // The short function of one program returns 0, that of the other jumps elsewhere.
    let whole =
        program("returns", &["-DMARKER=cudaLogsCurrent", "-DSHORT=\"xor %eax, %eax; ret\""]);
    assert_eq!(preloaded(&whole), "113 1003 5 1\n");
    let jumps = program("jumps", &["-DMARKER=cudaLogsCurrent", "-DSHORT=\"jmp 1f\""]);
    let said = preloaded(&jumps);
    assert!(
        said.starts_with("7 3 5 1\n") && said.contains("too short for a jump: cudaShort;"),
        "{said}"
    );
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_version_that_cannot_be_told_is_said_and_nothing_is_replaced() {
    let program = program("unknown", &["-DMARKER=cudaNothing"]);
    let said = preloaded(&program);
    assert!(said.starts_with("7 3 5 1\n") && said.contains("its version is unknown"), "{said}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_stripped_program_is_told_from_one_without_cuda() {
    let whole = program("whole", &["-DMARKER=cudaLogsCurrent", "-DSECTION"]);
    assert!(
        matches!(inspect(&whole), Runtime::Inside { major: 13, functions, .. } if functions.len() == 4)
    );
    let stripped = folder().join("stripped");
    run(Command::new("strip").arg("-o").arg(&stripped).arg(&whole));
    assert_eq!(inspect(&stripped), Runtime::Stripped);
    assert_eq!(preloaded(&stripped), "7 3 5 1\n");
    let plain = folder().join("plain");
    fs::copy("/bin/true", &plain).unwrap();
    assert_eq!(inspect(&plain), Runtime::Elsewhere);
    assert_eq!(preloaded(&plain), "");
}

/// Library with a runtime inside, and a constructor with the compiler's name that registers
/// kernels.
const MODULE: &str = r#"
#define INSIDE __attribute__((noipa, used)) static
INSIDE int libcudart_static_0123456789(void) { return 1; }
INSIDE int __cudaRegisterFatBinary(void *binary) { return binary ? 7 : libcudart_static_0123456789(); }
INSIDE int cudaMalloc(void **memory, unsigned long bytes) { *memory = 0; return (int)bytes; }
INSIDE int cudaThreadExit(void) { __asm__ volatile(""); return 1; }
static int registered, times;
__attribute__((constructor, used)) static void module__sti____cudaRegisterAll(void) { times++; registered = __cudaRegisterFatBinary(&registered); }
int how_often(void) { return times; }
int calls(void) { void *memory; return 10000 * registered + cudaMalloc(&memory, 3) + 0 * cudaThreadExit(); }
"#;

/// Program that loads each named module. Its search path has a folder that no other has.
const LOADER: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **names) {
    for (int i = 1; i < count; i++) {
        void *module = dlopen(names[i], RTLD_NOW);
        if (!module) { printf("%s\n", dlerror()); return 1; }
        printf("%d ", ((int (*)(void))dlsym(module, "calls"))());
    }
    printf("\n");
    return 0;
}
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn libraries_that_are_loaded_later_are_redirected_and_register_again() {
    let (module, other, loader) =
        (folder().join("module.so"), folder().join("known/other.so"), folder().join("loader"));
    fs::create_dir_all(folder().join("known")).unwrap();
    fs::write(folder().join("module.c"), MODULE).unwrap();
    fs::write(folder().join("loader.c"), LOADER).unwrap();
    for made in [&module, &other] {
        let source = folder().join("module.c");
        run(Command::new("cc").args(["-O1", "-w", "-shared", "-fPIC", "-o"]).arg(made).arg(source));
    }
    let known = format!("-Wl,--enable-new-dtags,-rpath,{}", folder().join("known").display());
    run(Command::new("cc")
        .arg("-o")
        .arg(&loader)
        .arg(folder().join("loader.c"))
        .args([&known, "-ldl"]));
    // A name without a folder is only found through the program's search path, so the load must
    // still count as the program's.
    let run_with = |patch: &str| {
        run(Command::new(&loader).arg(&module).arg("other.so").env("LD_PRELOAD", patch))
    };
    assert_eq!(run_with(""), "70003 70003 \n");
    let patch = folder().join("cuda/libpenstock_cudapatch.so");
    assert_eq!(run_with(patch.to_str().unwrap()), "1121003 70003 \n");
    // A load that fails does so as without the patch.
    let missing = Command::new(&loader)
        .arg("/nonexistent/module.so")
        .env("LD_PRELOAD", &patch)
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stdout).contains("/nonexistent/module.so"));
}

/// Library whose constructor loads a module, which is then new to both loads.
const OUTER: &str = r#"
#include <dlfcn.h>
__attribute__((constructor)) static void start(void) { dlopen(MODULE, RTLD_NOW); }
"#;

/// Program that loads modules at once, each in a thread, and prints how often each registered.
const THREADS: &str = r#"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
static pthread_barrier_t together;
static void *load(void *name) {
    pthread_barrier_wait(&together);
    void *module = dlopen(name, RTLD_NOW);
    return module ? dlsym(module, "calls") ? module : 0 : 0;
}
int main(int count, char **names) {
    pthread_t threads[64];
    void *modules[64];
    pthread_barrier_init(&together, 0, count - 1);
    for (int i = 1; i < count; i++) pthread_create(&threads[i], 0, load, names[i]);
    for (int i = 1; i < count; i++) pthread_join(threads[i], &modules[i]);
    for (int i = 1; i < count; i++) {
        if (!modules[i]) return 1;
        printf("%d %d\n", ((int (*)(void))dlsym(modules[i], "how_often"))(), ((int (*)(void))dlsym(modules[i], "calls"))());
    }
    return 0;
}
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn what_several_load_at_the_same_time_is_redirected_once() {
    let at = folder().join("once");
    fs::create_dir_all(&at).unwrap();
    let cc = |name: &str, source: &str, options: &[&str]| {
        let (code, made) = (at.join(format!("{name}.c")), at.join(name));
        fs::write(&code, source).unwrap();
        run(Command::new("cc").args(["-O1", "-w"]).args(options).arg("-o").arg(&made).arg(&code));
        made
    };
    let library = ["-shared", "-fPIC"];
    let patch = folder().join("cuda/libpenstock_cudapatch.so");
    let threads = cc("threads", THREADS, &["-pthread", "-ldl"]);
    let module = cc("module.so", MODULE, &library);
    let path = format!("-DMODULE=\"{}\"", module.display());
    let outer = cc("outer.so", OUTER, &["-shared", "-fPIC", &path]);
    let loader = cc(
        "nested",
        &format!(
            "#include <dlfcn.h>\n#include <stdio.h>\nint main(void) {{ void *module; if (!dlopen(\"{}\", RTLD_NOW)) return 1; module = dlopen(\"{}\", RTLD_NOW); printf(\"%d\", ((int (*)(void))dlsym(module, \"how_often\"))()); return 0; }}",
            outer.display(),
            module.display()
        ),
        &["-ldl"],
    );
    // The constructor ran once during the load and once to register with our runtime.
    assert_eq!(run(Command::new(&loader).env("LD_PRELOAD", &patch)), "2");
    let modules: Vec<_> =
        (0..16).map(|number| cc(&format!("module-{number}.so"), MODULE, &library)).collect();
    for _ in 0..20 {
        let said = run(Command::new(&threads).args(&modules).env("LD_PRELOAD", &patch));
        assert_eq!(said, "2 1121003\n".repeat(modules.len()));
    }
}

/// Library with a function of the runtime, and the number of its version.
const RUNTIME: &str = "int cudaVersion(void) { return VERSION; }";

/// Library that calls the runtime, and loads it by the name in `BARE` if there is one.
const CALLS: &str = r#"
#include <dlfcn.h>
int cudaVersion(void);
#ifdef BARE
int calls(void) {
    void *runtime = dlopen(BARE, RTLD_NOW);
    return runtime ? ((int (*)(void))dlsym(runtime, "cudaVersion"))() : 0;
}
#else
int calls(void) { return cudaVersion(); }
#endif
"#;

/// Programs and libraries in a folder of their own, with NVIDIA's runtime in `nvidia` and ours in
/// `ours`.
struct Package {
    at: PathBuf,
}

const OLD_TAGS: &str = "-Wl,--disable-new-dtags,-rpath,$ORIGIN:$ORIGIN/nvidia";
const NEW_TAGS: &str = "-Wl,--enable-new-dtags,-rpath,${ORIGIN}/nvidia";
const KEPT: &str = "-Wl,--no-as-needed,--allow-shlib-undefined";
const RUNTIME_FILE: &str = "libcudart.so.13";

impl Package {
    fn new(name: &str) -> Self {
        let at = folder().join(name);
        fs::create_dir_all(at.join("nvidia")).unwrap();
        let package = Self { at };
        for (folder, version) in [("nvidia", 1), ("ours", 2)] {
            let (version, soname) =
                (format!("-DVERSION={version}"), format!("-Wl,-soname,{RUNTIME_FILE}"));
            package.cc(&format!("{folder}/{RUNTIME_FILE}"), RUNTIME, &[&version, &soname]);
        }
        fs::copy(folder().join("cuda/libpenstock_cudapatch.so"), package.patch()).unwrap();
        package
    }

    fn patch(&self) -> PathBuf {
        self.at.join("ours/libpenstock_cudapatch.so")
    }

    fn cc(&self, name: &str, source: &str, options: &[&str]) -> PathBuf {
        let (code, made) = (self.at.join(format!("{name}.c")), self.at.join(name));
        fs::create_dir_all(code.parent().unwrap()).unwrap();
        fs::write(&code, source).unwrap();
        let shared = if name.contains(".so") { &["-shared", "-fPIC"][..] } else { &[] };
        let command = &mut Command::new("cc");
        command.args(["-w", "-pthread", "-o"]).arg(&made).arg(&code).args(shared);
        run(command.arg("-L").arg(&self.at).args(options).arg("-ldl"));
        made
    }

    /// Runs a program as `penstock run` does, with more folders for the loader.
    fn command(&self, program: &Path, folders: &str) -> Command {
        let mut command = Command::new(program);
        let path = format!("{}:{folders}", self.at.join("ours").display());
        command.env("LD_PRELOAD", self.patch()).env("LD_LIBRARY_PATH", path);
        command
    }
}

/// A Python package has NVIDIA's runtime in a folder that only the files of the package name.
#[test]
fn a_runtime_that_a_loaded_file_finds_in_a_folder_of_its_own_is_replaced() {
    let package = Package::new("package");
    let cc = |name: &str, source: &str, options: &[&str]| package.cc(name, source, options);
    let runtime = "-l:nvidia/libcudart.so.13";
    // The folders of the first file count also for the libraries behind it.
    cc("libinner.so", CALLS, &[runtime]);
    cc("libmiddle.so", "int middle;", &[KEPT, "-l:libinner.so"]);
    let behind = cc("behind.so", "int outer;", &[OLD_TAGS, KEPT, "-l:libmiddle.so"]);
    let own = cc("own.so", CALLS, &[NEW_TAGS, runtime]);
    let bare = cc("bare.so", CALLS, &[OLD_TAGS, "-DBARE=\"libcudart.so.13\"", KEPT]);
    // A library in a folder of the variable has a folder of its own.
    let elsewhere = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../nvidia";
    cc("elsewhere/libfar.so", CALLS, &[elsewhere, runtime, "-Wl,-soname,libfar.so"]);
    let far = cc("far.so", "int far;", &[KEPT, "-l:elsewhere/libfar.so"]);
    // The folders of the program count for all that it loads.
    cc("alone/libplain.so", CALLS, &[runtime]);
    let loader = cc("loader", LOADER, &[]);
    let direct = cc("direct", &LOADER.replace("calls", "cudaVersion"), &[]);
    let naming = cc("naming", LOADER, &[OLD_TAGS]);
    let folders = package.at.join("elsewhere").display().to_string();
    let theirs = package.at.join("nvidia").join(RUNTIME_FILE);
    for (program, file) in [
        (&loader, &behind),
        (&loader, &own),
        (&loader, &bare),
        (&loader, &far),
        (&loader, &PathBuf::from("libfar.so")),
        (&naming, &package.at.join("alone/libplain.so")),
        (&direct, &theirs),
    ] {
        let bare = run(Command::new(program).arg(file).env("LD_LIBRARY_PATH", &folders));
        assert_eq!(bare, "1 \n", "{}", file.display());
        let said = run(package.command(program, &folders).arg(file));
        assert_eq!(said, "2 \n", "{}", file.display());
        // What Penstock does not have stays what it was.
        let (ours, away) = (package.at.join("ours").join(RUNTIME_FILE), package.at.join("away"));
        fs::rename(&ours, &away).unwrap();
        let said = run(package.command(program, &folders).arg(file));
        fs::rename(&away, &ours).unwrap();
        assert_eq!(said, "1 \n", "{}", file.display());
    }
    let missing =
        package.command(&direct, "").arg("/nonexistent/libcudart.so.13").output().unwrap();
    assert_eq!(missing.status.code(), Some(1), "a file that is not there was loaded");
    // Penstock's own programs open NVIDIA's libraries for the pool.
    let own_program = package.at.join("penstockd");
    fs::copy(&direct, &own_program).unwrap();
    assert_eq!(run(package.command(&own_program, "").arg(&theirs)), "1 \n");
}

/// Program that fails to load a module, waits until it is there, and loads it.
const RETRIES: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int count, char **words) {
    if (dlopen(words[1], RTLD_NOW)) return 2;
    if (system(words[2])) return 3;
    void *module = dlopen(words[1], RTLD_NOW);
    if (!module) return 4;
    printf("%d\n", ((int (*)(void))dlsym(module, "calls"))());
    return 0;
}
"#;

#[test]
fn a_module_that_is_built_after_a_failure_is_looked_at() {
    let package = Package::new("later");
    let module = package.cc("module.so", CALLS, &[OLD_TAGS, "-l:nvidia/libcudart.so.13"]);
    let (away, retries) = (package.at.join("away.so"), package.cc("retries", RETRIES, &[]));
    fs::rename(&module, &away).unwrap();
    let build = format!("mv '{}' '{}'", away.display(), module.display());
    assert_eq!(run(package.command(&retries, "").arg(&module).arg(build)), "2\n");
}

/// Several threads load the same module, which needs several libraries.
#[test]
fn all_threads_that_load_a_module_get_our_runtime() {
    let package = Package::new("threads");
    let names: Vec<_> = (0..4).map(|number| format!("libneeded{number}.so")).collect();
    for name in &names {
        package.cc(name, "int needed;", &[OLD_TAGS, KEPT, "-l:nvidia/libcudart.so.13"]);
    }
    let needed: Vec<_> = names.iter().map(|name| format!("-l:{name}")).collect();
    let mut options = vec![OLD_TAGS, KEPT, "-l:nvidia/libcudart.so.13"];
    options.extend(needed.iter().map(String::as_str));
    let source = format!("{CALLS}\nint how_often(void) {{ return 1; }}");
    let module = package.cc("module.so", &source, &options);
    let threads = package.cc("threads", THREADS, &[]);
    for _ in 0..20 {
        let said = run(package.command(&threads, "").args([&module; 8]));
        assert_eq!(said, "1 2\n".repeat(8));
    }
}

/// Library that stands in for NVRTC: program 1 has PTX, program 2 only has machine code.
const COMPILER: &str = r#"
#include <string.h>
typedef unsigned long size;
int nvrtcGetPTXSize(void *program, size *bytes) { if (program != (void *)1) return 5; *bytes = 6; return 0; }
int nvrtcGetPTX(void *program, char *code) { strcpy(code, ".ptx."); return program != (void *)1; }
int nvrtcGetCUBINSize(void *program, size *bytes) { *bytes = 9; return program == 0; }
int nvrtcGetCUBIN(void *program, char *code) { strcpy(code, "machine!"); return program == 0; }
"#;

const COMPILES: &str = r#"
#include <stdio.h>
typedef unsigned long size;
int nvrtcGetCUBINSize(void *, size *);
int nvrtcGetCUBIN(void *, char *);
int main(void) {
    for (size program = 0; program < 3; program++) {
        size bytes = 0;
        char code[16] = "";
        int first = nvrtcGetCUBINSize((void *)program, &bytes), second = nvrtcGetCUBIN((void *)program, code);
        printf("%d %d %lu %s\n", first, second, bytes, code);
    }
    return 0;
}
"#;

#[test]
fn who_asks_the_compiler_for_machine_code_gets_ptx_where_there_is_some() {
    let (compiler, program) = (folder().join("libnvrtc.so.13"), folder().join("compiles"));
    fs::write(folder().join("compiler.c"), COMPILER).unwrap();
    fs::write(folder().join("compiles.c"), COMPILES).unwrap();
    run(Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&compiler)
        .arg(folder().join("compiler.c")));
    let path = format!("-Wl,-rpath,{}", folder().display());
    run(Command::new("cc")
        .arg("-o")
        .arg(&program)
        .arg(folder().join("compiles.c"))
        .arg(&compiler)
        .arg(path));
    assert!(wants_machine_code(&program) && !wants_machine_code(Path::new("/bin/true")));
    assert_eq!(
        run(&mut Command::new(&program)),
        "1 1 9 machine!\n0 0 9 machine!\n0 0 9 machine!\n"
    );
    assert_eq!(preloaded(&program), "1 1 9 machine!\n0 0 6 .ptx.\n0 0 9 machine!\n");
}
