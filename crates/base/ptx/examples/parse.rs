//! Parses PTX files and lists their content: `cargo run -p penstock-ptx --example parse FILE...`
#![expect(clippy::print_stdout, reason = "its purpose")]

fn main() {
    let mut failed = false;
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path).expect("a file");
        for image in penstock_ptx::fatbin::images(&bytes).expect("PTX or a fat binary") {
            let Ok(text) = String::from_utf8(image.bytes) else { continue };
            match penstock_ptx::module::parse(&text) {
                Ok(module) => println!(
                    "{path}: {} kernels, {} functions, {} variables",
                    module.entries().len(),
                    module.functions().len(),
                    module.globals().len()
                ),
                Err(error) => {
                    failed = true;
                    println!("{path}: {error}");
                }
            }
        }
    }
    std::process::exit(i32::from(failed));
}
