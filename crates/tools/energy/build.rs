//! Link arguments of the shared library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpenstock_energy.so");
    // The sampler thread may still be ending while a program unloads the library.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
