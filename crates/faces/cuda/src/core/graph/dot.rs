//! Graphs as text for `dot`.

use std::fmt::Write as _;

use penstock_cuda_sys::driver::*;

use super::Graph;
use super::work::Work;
use crate::edge::Object as _;

/// Returns the graph in the language of Graphviz. `is_verbose`: with the details of each node.
pub(crate) fn text(graph: &Graph, is_verbose: bool) -> String {
    let mut text = String::from("digraph penstock {\n");
    add(&mut text, graph, is_verbose);
    text.push_str("}\n");
    text
}

fn name(kind: u32) -> &'static str {
    match kind {
        CU_GRAPH_NODE_TYPE_KERNEL => "KERNEL",
        CU_GRAPH_NODE_TYPE_MEMCPY => "MEMCPY",
        CU_GRAPH_NODE_TYPE_MEMSET => "MEMSET",
        CU_GRAPH_NODE_TYPE_HOST => "HOST",
        CU_GRAPH_NODE_TYPE_GRAPH => "GRAPH",
        CU_GRAPH_NODE_TYPE_EMPTY => "EMPTY",
        CU_GRAPH_NODE_TYPE_WAIT_EVENT => "EVENT_WAIT",
        CU_GRAPH_NODE_TYPE_EVENT_RECORD => "EVENT_RECORD",
        CU_GRAPH_NODE_TYPE_MEM_ALLOC => "MEM_ALLOC",
        _ => "MEM_FREE",
    }
}

fn detail(work: &Work) -> String {
    match work {
        Work::Kernel(launch) => {
            let [x, y, z] = launch.shape.grid;
            let [block_x, block_y, block_z] = launch.shape.block;
            // No escape needed: names of functions have no quotes.
            let name = launch.function.c_name.to_string_lossy();
            format!(
                "\\n{name}\\n{{{x},{y},{z}}} x {{{block_x},{block_y},{block_z}}}, {} B",
                launch.shape.dynamic
            )
        }
        Work::Copy(_, copy) => {
            let [width, height, depth] = copy.size;
            format!("\\n{width} B x {height} x {depth}")
        }
        Work::Fill(_, fill) => {
            format!(
                "\\n{:#x} = {} ({} B) x {} x {}",
                fill.to, fill.value, fill.element, fill.width, fill.height
            )
        }
        Work::Allocate(memory) => format!("\\n{:#x}, {} B", memory.address(), memory.size),
        Work::Free(address) => format!("\\n{address:#x}"),
        _ => String::new(),
    }
}

fn add(text: &mut String, graph: &Graph, is_verbose: bool) {
    let number = graph.number();
    // Writing to a string cannot fail.
    _ = writeln!(text, "subgraph cluster_{number:x} {{\nlabel=\"graph {number:#x}\"");
    let shape = graph.shape();
    for node in &shape.nodes {
        let (number, work) = (node.number(), node.work());
        let detail = if is_verbose { detail(&work) } else { String::new() };
        _ = writeln!(
            text,
            "\"node_{number:x}\" [shape=\"record\" label=\"{}{}\"];",
            name(work.kind()),
            escaped(&detail)
        );
        if let Work::Child(child) = &work {
            add(text, child, is_verbose);
        }
    }
    for (from, to) in graph.edges() {
        _ = writeln!(text, "\"node_{from:x}\" -> \"node_{to:x}\";");
    }
    text.push_str("}\n");
}

/// Escapes characters that have a meaning in a record's label.
fn escaped(label: &str) -> String {
    label.replace('{', "\\{").replace('}', "\\}")
}
