//! Every limit of the protocol, by name, with its derivation. What is over a limit is refused with an error that names it.

/// Version of the protocol. Peers with another version are refused: see [`crate::hello`].
pub const PROTOCOL_VERSION: u16 = 3;

/// Body of a call, in bytes, without wait list and payload. The largest, an image copy, needs under 200; twice that leaves room.
pub const BODY_BYTES_MAX: usize = 512;

/// Events in one wait list: the header counts them in 16 bits. A client with more puts markers in between.
pub const WAITS_MAX: usize = u16::MAX as usize;

/// Payload of a streamed call, in bytes: 64 TiB, more than any device has; a length beyond it is garbage.
pub const STREAM_BYTES_MAX: u64 = 1 << 46;

/// Arguments of one launch, in bytes. Drivers take 1,024 to 4,352 bytes of arguments by value; a memory argument costs 24 bytes here.
pub const ARGS_BYTES_MAX: u64 = 256 << 10;

/// Arguments of one kernel. CUDA's limit is 32,764 bytes of parameters, so at most 4,096 pointers; OpenCL's drivers take fewer.
pub const ARG_INDEX_MAX: u32 = 8_191;

/// Source, binary or IL of a program, and build options, in bytes. The largest seen, a deep-learning library's, was 40 MB.
pub const PROGRAM_BYTES_MAX: u64 = 256 << 20;

/// A reply, in bytes: as much as a program's binaries, which it may carry.
pub const REPLY_BYTES_MAX: u64 = 512 << 20;

/// Small structured payloads (device lists, image descriptions, peer addresses), in bytes.
pub const SMALL_BYTES_MAX: u64 = 64 << 10;

/// What a kernel printed, in bytes, in one frame; longer output is cut into frames.
pub const OUTPUT_BYTES_MAX: u64 = 64 << 10;

/// A hello message, in bytes: a few names and numbers.
pub const HELLO_BYTES_MAX: usize = 4 << 10;

/// A node's description, in bytes: 64 devices of 16 KiB would be 1 MiB; extension strings are long, so four times that.
pub const DESCRIPTION_BYTES_MAX: usize = 4 << 20;

/// A fill pattern, in bytes: the size of the largest OpenCL vector, a double16 or long16.
pub const PATTERN_BYTES_MAX: usize = 128;

/// Objects of one kind in one session. A program that makes a million buffers is a program with a leak.
pub const OBJECTS_PER_SESSION_MAX: usize = 1 << 20;

/// Events of one session that are not yet released. One is some 200 bytes in the worker: 800 MB at the worst.
pub const EVENTS_PER_SESSION_MAX: usize = 4 << 20;

/// Bytes that a worker holds for one client between link and device; at the limit it stops reading from the link until
/// commands complete. Sixteen transfers of 64 MiB. Content from other nodes that came before its target was ready has the same
/// again for itself.
pub const STAGED_BYTES_MAX: u64 = 1 << 30;

/// The same where commands wait for something that only the client can tell (a user event), which may come behind their
/// bytes: then nothing is freed by waiting. Four times as much; a program that has more behind one user event ends with an
/// error that names this limit, where it would hang.
pub const GATED_BYTES_MAX: u64 = 4 * STAGED_BYTES_MAX;

/// Memory objects of one session, in multiples of what all devices of the node have (`CL_DEVICE_GLOBAL_MEM_SIZE`). Once:
/// a program that needs more fails on the devices themselves. Buffers that client and worker share are the client's own memory
/// and do not count.
pub const MEMORY_SHARE_MAX: u64 = 1;

/// Devices in one symmetric heap: the flags of a barrier have a line of 64 bytes for each, and one word of 64 bits names them all.
pub const HEAP_PES_MAX: usize = 64;

/// Symmetric heaps of one session. Each is a file descriptor for its memory and for each other member, and at most two threads:
/// with 64 members 66 descriptors, 3,960 in all, which leaves more than a hundred of the 4,096 that a process may have where the
/// system's hard limit is asked for.
pub const HEAPS_PER_SESSION_MAX: usize = 60;

/// Bytes of each device's part of a heap: 1 TiB, so that the addresses of [`HEAP_PES_MAX`] parts (64 TiB) fit a process of 47 bits twice.
pub const HEAP_BYTES_MAX: u64 = 1 << 40;

/// How long a kernel may wait inside a heap before it gives up, in ms: ten minutes. A kernel cannot be stopped from outside in
/// another way than by the abort word, so what would wait longer is a program that hangs.
pub const HEAP_TIMEOUT_MS_MAX: u32 = 600_000;

/// Why a heap was aborted, in bytes: a sentence or two.
pub const HEAP_REASON_BYTES_MAX: u64 = 1 << 10;

/// Memory of a worker's messages that its client has not taken, in bytes: a million completions. A client takes them with each of
/// its waits, and now and then while it sends; at the limit its session ends.
pub const UNTAKEN_BYTES_MAX: usize = 256 << 20;

/// Time that a peer has for its hello, in milliseconds. Four round trips of 300 ms (a satellite) fit four times over.
pub const HELLO_MS_MAX: u64 = 5_000;

/// Connections that a daemon holds before their hello is complete; the oldest gives way to a new one. Each is a thread of
/// 64 KiB stack: 16 MiB in all.
pub const PENDING_HELLOS_MAX: usize = 256;

/// Sessions of one daemon. Each is a process of some 60 MB with a driver loaded: 16 GB.
pub const SESSIONS_PER_DAEMON_MAX: usize = 256;

/// Clients that wait in a daemon's line for a worker; one more is refused. Each is a descriptor and
/// some 100 bytes of the daemon. With a descriptor for the control socket of each of 256 sessions
/// and two for each of 256 hellos, that is some 1,300 of the 4,096 descriptors that a process may
/// have on the strictest of usual systems.
pub const CLIENTS_IN_LINE_MAX: usize = 512;

/// How often a daemon tells a client in line that it lives and where the client stands, in ms. A
/// full line costs the daemon 512 messages of 6 bytes each second.
pub const LINE_NOTE_MS: u64 = 1_000;

/// A daemon that says nothing to a client in line for so long, in ms, is dead or stopped: ten
/// messages of [`LINE_NOTE_MS`] are missing. On a machine with a hundred busy processes for each
/// core, a process waits for its turn for less than a second.
pub const LINE_SILENCE_MS_MAX: u64 = 10 * LINE_NOTE_MS;
