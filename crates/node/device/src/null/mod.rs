//! A driver without hardware and without a compiler: its one device is simulated in this process.
//! Tests of everything above the drivers use it. A process has it only if it asks for it
//! ([`crate::Driver::simulate`]), and then it has no other driver.
//!
//! The device executes transfers and its built-in kernels exactly, in the host's memory. A program
//! consists of the words `penstock null` and the names of built-in kernels, for example:
//!
//! ```text
//! penstock null
//! add endless
//! ```
//!
//! Any other source fails to build. All buffers are `global uint *`, and all values are `uint`:
//!
//! | kernel | does |
//! |---|---|
//! | `copy(from, to)` | `to[i] = from[i]` |
//! | `add(a, b, sum)` | `sum[i] = a[i] + b[i]` |
//! | `scale(a, factor)` | `a[i] *= factor` |
//! | `endless(word)` | runs until `word[0]` is not 0 |
//! | `fail(code)` | ends with this code, a negative number |
//! | `refuse(code)` | cannot be enqueued: the launch returns this code |
//! | `starve(buffers)` | its context can make this number of further buffers, and no more |
//! | `lose()` | its context is lost |
//!
//! The device looks at the word of an endless kernel when the kernel begins, and after each other
//! command of the context. What the host writes into the buffer by itself is no command. If the
//! context is gone or lost, the device ends the kernel with `CL_OUT_OF_RESOURCES`. A lost context
//! gives this code to all commands that have not ended, to all new commands, and to whoever makes a
//! buffer.
//!
//! Nothing depends on real time. The times of events are numbers of a counter, which each phase of
//! a command increments.
//!
//! * `machine` decides which command runs next: a state machine without threads and locks.
//! * `engine` runs the commands of a context, on the one thread of the device.
//! * `memory` has the buffers, `builtin` the kernels, and `transfer` the work of all commands.
//! * `device`, `context`, `queue`, `program` and `kernel` implement the traits.

mod builtin;
mod context;
mod device;
mod engine;
mod kernel;
mod machine;
mod memory;
mod program;
mod queue;
mod transfer;

pub(crate) use device::platform;
