//! Compiles the functions that C declares with `...`, which stable Rust cannot define. Names the
//! shared library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libwater.so");
    println!("cargo::rerun-if-changed=shim/wtr_shim.c");
    println!("cargo::rerun-if-changed=include");
    cc::Build::new()
        .file("shim/wtr_shim.c")
        .include("include")
        .std("c11")
        .warnings(true)
        .compile("wtr_shim");
}
