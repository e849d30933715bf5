//! The CUDA face of the pool: `libcuda.so.1`, the public driver interface, on any OpenCL device.
//!
//! * `edge`: everything that is particular to a C interface: entry points, handles, memory of the
//!   program.
//! * [`api`]: CUDA's functions. Each checks its arguments against the errors that the interface
//!   lists.
//! * `core`: the objects behind the handles. It uses no raw pointers of programs. The file of an
//!   object has the same name as the file in [`api`] with the functions for it.
//!
//! [`api`] uses `core` and `edge`, and `core` uses `edge`. The files of `core` form layers, and a
//! file imports only files of its own layer and of the layers below:
//!
//! | layer    | what is there                                                  |
//! |----------|----------------------------------------------------------------|
//! | ends     | frees and ends that concern all objects of a context           |
//! | graphs   | graphs, captures, and waits for events, which may be captured  |
//! | commands | what programs put into streams, and the objects that they use  |
//! | streams  | contexts, their streams, and the order of commands             |
//! | devices  | devices, the code that they run, and heaps over several        |
//! | memory   | a device's addresses, and what a device reports of itself      |
//! | data     | plain data and decisions, without devices                      |
//!
//! The files of each layer:
//!
//! * ends: `primary`, `destroy`, `memory`.
//! * graphs: `graph/*`, `event_query`.
//! * commands: `launch`, `heap_launch`, `module`, `library`, `link`, `copy`, `row`, `slice`,
//!   `memset`, `library_call`, `callback`, `event`, `pool`, `array`, `texture`.
//! * streams: `default_stream`, `stream_list`, `order`, `watch`, `context`, `stream`, `control`.
//! * devices: `platform`, `device`, `attribute`, `build`, `program`, `native/module`,
//!   `native/variable`, `heap`.
//! * memory: `check`, `arena`, `block`, `facts`, `native/arena`, `native/attribute`.
//! * data: `address`, `free`, `clock`, `unawaited`, `host`, `reserved`, `fault`, `printf`,
//!   `capability`, `setup`, `shape`.
//!
//! A launch passes these places: [`api::launch`] checks the pointers of the program and asks
//! `graph/capture` whether the stream is captured. `launch` checks the shape and sets the arguments
//! of the kernel that `module` has bound. `order` finds the events that the launch must wait for,
//! sends it to the stream's queue, and counts it in the stream's `clock`. `watch` looks for its
//! faults and its printed output when the program waits.
//!
//! [`api::table`] lists all functions; docs/cuda.md is generated from it.

pub mod api;
mod core;
mod edge;

/// Number of streams of the current context, including destroyed streams that are still busy. For
/// tests: the interface has no function for it.
#[doc(hidden)]
pub fn streams_of_current() -> usize {
    core::context::Context::current().map_or(0, |context| context.stream_count())
}
