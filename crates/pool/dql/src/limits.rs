//! Limits of a query's text, so that no text costs much time, memory or stack.

/// Largest length of a query in bytes. The longest sensible query names each of the 1,024 nodes of
/// a pool by a host name of 60 characters.
pub const TEXT_BYTES_MAX: usize = 64 << 10;

/// Largest nesting depth of parentheses and `NOT`s. People nest fewer than ten. Each level needs
/// less than 1 KiB of stack, and a thread of a foreign program may have as little as 256 KiB.
pub const DEPTH_MAX: usize = 64;

/// Number of characters of a query's line that a message shows, so that it fits a terminal with the
/// indentation.
pub const EXCERPT_CHARS_MAX: usize = 100;

/// Longest word for which a similar name is searched. The longest attribute has 46 characters.
pub const SUGGESTION_CHARS_MAX: usize = 64;
