//! Compares the list of driver functions with NVIDIA's header of CUDA 13, by compiling C: a pointer
//! of the listed type is set to each function.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use penstock_cuda_sys::driver::{FUNCTIONS, Function};
use penstock_trial::{Need, skip};

/// Returns C's name of a Rust type of the list.
fn in_c(rust: &str) -> String {
    for (pointer, constant) in [("*mut ", ""), ("*const ", " const")] {
        if let Some(pointee) = rust.strip_prefix(pointer) {
            return format!("{}{constant} *", in_c(pointee));
        }
    }
    let name = match rust {
        "c_char" => "char",
        "c_int" => "int",
        "c_uchar" => "unsigned char",
        "c_uint" => "unsigned int",
        "c_ulonglong" => "unsigned long long",
        "c_ushort" => "unsigned short",
        "c_void" => "void",
        "f32" => "float",
        "u64" => "cuuint64_t",
        "usize" => "size_t",
        // Structures and handles have C's names.
        other => other,
    };
    name.to_owned()
}

fn program(functions: &[Function]) -> String {
    // With this macro the header declares all versions of each function under their symbols.
    let mut text = "#define __CUDA_API_VERSION_INTERNAL\n".to_owned();
    text += "#include <cuda.h>\n#include <cudaProfiler.h>\n";
    for function in functions {
        let types: Vec<_> = function.parameters.iter().map(|rust| in_c(rust)).collect();
        let types = if types.is_empty() { "void".to_owned() } else { types.join(", ") };
        for name in function.symbols {
            writeln!(text, "CUresult (*const of_{name})({types}) = {name};").unwrap();
        }
    }
    text
}

fn compile(text: &str, headers: &Path) -> Output {
    let folder = std::env::temp_dir().join(format!("penstock-signatures-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(format!("{:x}.c", text.len()));
    std::fs::write(&file, text).unwrap();
    let output = Command::new("cc")
        .args(["-std=c11", "-fsyntax-only", "-Werror", "-isystem"])
        .args([headers, &file])
        .output()
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    output
}

/// Returns the headers that `tools/setup.sh cuda` installs.
fn headers() -> Option<PathBuf> {
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.venv-cuda/lib");
    let folders = std::fs::read_dir(lib)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path().join("site-packages/nvidia/cu13/include")));
    folders.into_iter().find(|folder| folder.join("cuda.h").exists())
}

#[test]
fn the_list_has_the_types_of_nvidias_header() {
    let Some(headers) = headers() else {
        return skip(Need::CudaToolkit, "no headers of CUDA 13: run tools/setup.sh cuda");
    };
    let output = compile(&program(FUNCTIONS), &headers);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The comparison notices a wrong width, a wrong handle, and a missing parameter.
    for parameters in [&["c_int", "usize"], &["*mut CUcontext", "c_uint"], &["", ""]] {
        let parameters = parameters.iter().copied().filter(|name| !name.is_empty());
        let parameters: Vec<&str> = parameters.collect();
        let wrong = Function { symbols: &["cuCtxSetLimit"], parameters: Vec::leak(parameters) };
        let output = compile(&program(&[wrong]), &headers);
        assert!(!output.status.success(), "{wrong:?} passed");
    }
}
