//! The command line of `penstock top`.

use clap::Args;

pub const AFTER_TOP: &str = "\
Examples:
  penstock top
  penstock top --nodes gpu01,ssh:gpu02
  penstock top --once
  penstock top --once --json | jq '.nodes[].sessions[].client'

Keys:
Tab, or 1, 2 and 3, show nodes, devices or clients. The arrows choose a row, < and > the column by \
which rows are sorted, and r reverses the order. / shows only rows with a text. x ends the chosen \
session after a question: see penstock-kill(1). ? explains the columns, and q ends.

Figures:
Rates are differences between two looks, so the first ones come after a second. USE is the time \
in use of the devices; it is 200% if two devices are in use, or two sessions use one. HELD is the \
device memory that sessions have borrowed, perhaps ahead of their use. LAUNCH/S counts kernels, \
and MOVED/S the bytes of content that workers have received and sent. WATT is the node's, or that \
of a client's devices, where a counter tells it. A figure that nobody knows is `-`, and null in \
JSON. The runs of `penstock run` are not shown. NO_COLOR switches colours off.

Exit status:
0 if all nodes answer, or after q; with --once, 1 if some answer and others do not, and 3 if none \
does; 2 if the command line or the configuration is wrong.";

#[derive(Args, Debug)]
pub struct TopArgs {
    /// Look twice, one second apart, and write one table of each kind. This is the default if the
    /// input or the output is no terminal
    #[arg(long)]
    pub once: bool,
    /// Write one JSON document, as with --once
    #[arg(long)]
    pub json: bool,
    /// Nodes to ask, instead of the configured ones
    #[arg(long, value_name = "LIST")]
    pub nodes: Option<String>,
}
