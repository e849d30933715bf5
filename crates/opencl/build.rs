//! Link arguments of the shared library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Newer loaders unload drivers at exit, while threads of ours may still run in them.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The loader has functions of the same names as we export; the dispatch table must lead to ours.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpenstock_opencl.so");
}
