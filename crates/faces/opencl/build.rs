//! Link arguments of the shared library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Newer loaders unload drivers at exit, while our threads may still run in them.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The loader exports the same names as we do; our dispatch table must lead to our functions.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpenstock_opencl.so");
}
