//! Limits of a query's text, so that no text can cost much time, memory or stack.

/// Bytes of a query. The longest sensible one names each of the 1,024 nodes of a pool by a host name of 60 characters.
pub const TEXT_BYTES_MAX: usize = 64 << 10;

/// Parentheses and `NOT`s inside each other. People write fewer than ten; each costs less than 1 KiB of stack, and a thread
/// of a foreign program may have as little as 256 KiB.
pub const DEPTH_MAX: usize = 64;

/// Characters of a query's line that a message shows: what fits a terminal beside the indentation.
pub const EXCERPT_CHARS_MAX: usize = 100;

/// A word longer than this has no name near it: the longest attribute has 46 characters.
pub const SUGGESTION_CHARS_MAX: usize = 64;
