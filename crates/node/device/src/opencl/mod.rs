//! The drivers behind the node's ICD loader, which is opened at run time. There is a file for each
//! kind of object, from the lowest to the highest:
//!
//! * `api` has the loader's functions, `owned` owns references to the driver's objects.
//! * `platform`, `device`, `retire` (queues) and `context` describe what exists.
//! * `event`, `watch` and `reclaim` follow the commands to their end. `pins` unties threads.
//! * `queue` enqueues commands. `memory`, `image`, `sampler`, `program` and `kernel` are what they
//!   use; `transfer`, `image_command`, `task` and `command` are
//!   the commands.
//! * `report`, `create` and `load` implement the traits that make objects.

mod api;
mod command;
mod context;
mod create;
mod device;
mod event;
mod image;
mod image_command;
mod kernel;
mod load;
mod memory;
mod owned;
mod pins;
mod platform;
mod program;
mod queue;
mod reclaim;
mod report;
mod retire;
mod sampler;
mod task;
mod transfer;
mod watch;

pub(crate) use load::platforms;
pub use pins::share_cpus;
