//! Link arguments of the shared library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpenstock_energy.so");
    // The sampler may still be on its way out while a program unloads the library.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
