//! Prints the OpenCL C translation of a PTX file: `translate FILE.ptx [check] [DATA]`. Standard
//! error lists the kernels. The initial content of the module's variables goes to the file DATA,
//! without relocations.

use penstock_ptx::module;
use penstock_ptx::translate::{Options, translate};

/// Base address of the examples' arena.
const BASE: u64 = 0x7000_0000_0000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = arguments.first().ok_or("usage: translate FILE.ptx [check] [DATA]")?;
    let module = module::parse(&std::fs::read_to_string(path)?)?;
    let options = Options {
        arenas: vec![(BASE, 1 << 32)],
        heap: false,
        check: arguments[1..].iter().any(|word| word == "check"),
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
    if let Some(data) = arguments[1..].iter().find(|word| *word != "check") {
        std::fs::write(data, &module.data().bytes)?;
    }
    Ok(())
}
