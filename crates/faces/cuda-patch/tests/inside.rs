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

/// A Python package has NVIDIA's runtime in a folder that only the files of the package name.
#[test]
fn a_runtime_that_a_loaded_file_finds_in_a_folder_of_its_own_is_replaced() {
    let at = folder().join("package");
    fs::create_dir_all(at.join("nvidia")).unwrap();
    let cc = |name: &str, source: &str, options: &[&str]| {
        let (code, made) = (at.join(format!("{name}.c")), at.join(name));
        fs::create_dir_all(code.parent().unwrap()).unwrap();
        fs::write(&code, source).unwrap();
        let shared = if name.contains(".so") { &["-shared", "-fPIC"][..] } else { &[] };
        let command = &mut Command::new("cc");
        command.args(["-w", "-o"]).arg(&made).arg(&code).args(shared).arg("-L").arg(&at);
        run(command.args(options));
        made
    };
    let soname = "-Wl,-soname,libcudart.so.13";
    let theirs = cc("nvidia/libcudart.so.13", RUNTIME, &["-DVERSION=1", soname]);
    let ours = cc("ours/libcudart.so.13", RUNTIME, &["-DVERSION=2", soname]);
    let patch = at.join("ours/libpenstock_cudapatch.so");
    fs::copy(folder().join("cuda/libpenstock_cudapatch.so"), &patch).unwrap();
    let old = "-Wl,--disable-new-dtags,-rpath,$ORIGIN:$ORIGIN/nvidia";
    let new = "-Wl,--enable-new-dtags,-rpath,${ORIGIN}/nvidia";
    let runtime = "-l:nvidia/libcudart.so.13";
    let lazily = "-Wl,--allow-shlib-undefined";
    // The folders of the first file count also for the libraries behind it.
    cc("libinner.so", CALLS, &[runtime]);
    cc("libmiddle.so", "int middle;", &["-Wl,--no-as-needed", "-l:libinner.so", lazily]);
    let behind =
        cc("behind.so", "int outer;", &[old, "-Wl,--no-as-needed", "-l:libmiddle.so", lazily]);
    let own = cc("own.so", CALLS, &[new, runtime]);
    let bare = cc("bare.so", CALLS, &[old, "-DBARE=\"libcudart.so.13\"", "-Wl,--no-as-needed"]);
    let loader = cc("loader", LOADER, &["-ldl"]);
    let direct = cc("direct", &LOADER.replace("calls", "cudaVersion"), &["-ldl"]);
    for (program, file) in
        [(&loader, &behind), (&loader, &own), (&loader, &bare), (&direct, &theirs)]
    {
        let said = |patch: &Path| {
            let folder = patch.parent().unwrap_or(Path::new(""));
            let command = &mut Command::new(program);
            run(command.arg(file).env("LD_PRELOAD", patch).env("LD_LIBRARY_PATH", folder))
        };
        assert_eq!(said(Path::new("")), "1 \n", "{}", file.display());
        assert_eq!(said(&patch), "2 \n", "{}", file.display());
        // What Penstock does not have stays what it was.
        fs::rename(&ours, at.join("away")).unwrap();
        assert_eq!(said(&patch), "1 \n", "{}", file.display());
        fs::rename(at.join("away"), &ours).unwrap();
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
