//! The handlers of the client's calls, with one file for each kind of object.

mod command;
mod context;
mod event;
mod grant;
mod heap;
mod heap_transport;
mod image;
mod kernel;
mod library;
mod memory;
mod peer;
mod program;
mod queue;
mod read;
mod sensors;
mod svm;
mod transfer;
mod write;
