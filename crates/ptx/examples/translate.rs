//! Prints the OpenCL C that a PTX file becomes: `translate FILE.ptx [check]`. On stderr: the kernels.

use penstock_ptx::module;
use penstock_ptx::translate::{Options, translate};

/// Where the arena of the examples starts.
const BASE: u64 = 0x7000_0000_0000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: translate FILE.ptx [check]")?;
    let check = arguments.next().is_some_and(|word| word == "check");
    let module = module::parse(&std::fs::read_to_string(path)?)?;
    let options = Options {
        arenas: vec![(BASE, 1 << 32)],
        check,
        fp64: true,
        int64_atomics: true,
        fp16: false,
        exact_division: true,
    };
    let translation = translate(&module, &options)?;
    print!("{}", translation.source);
    for kernel in &translation.kernels {
        eprintln!("{kernel:?}");
    }
    eprintln!("options: {}", translation.build_options);
    Ok(())
}
