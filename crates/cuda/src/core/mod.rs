//! The objects behind the handles. They know no raw pointers of programs.

pub(crate) mod address;
pub(crate) mod arena;
pub(crate) mod array;
pub(crate) mod attribute;
pub(crate) mod callback;
pub(crate) mod context;
pub(crate) mod control;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod fault;
pub(crate) mod host;
pub(crate) mod launch;
pub(crate) mod library;
pub(crate) mod link;
pub(crate) mod log;
pub(crate) mod module;
pub(crate) mod native;
pub(crate) mod order;
pub(crate) mod platform;
pub(crate) mod pool;
pub(crate) mod printf;
pub(crate) mod program;
pub(crate) mod rows;
pub(crate) mod stream;
pub(crate) mod texture;
