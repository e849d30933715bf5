//! Every limit of the protocol, with its derivation. An input that exceeds a limit is refused with
//! an error that names the limit.

/// Version of the protocol. Peers with another version are refused, see [`crate::hello`].
pub const PROTOCOL_VERSION: u16 = 5;

/// Size of a call's body in bytes, without wait list and payload. The largest, an image copy, needs
/// under 200; 512 leaves more than twice that.
pub const BODY_BYTES_MAX: usize = 512;

/// Number of events in one wait list, which the header counts in 16 bits. A client with more splits
/// the list over markers.
pub const WAITS_MAX: usize = u16::MAX as usize;

/// Size of the payload of a streamed call in bytes: 64 TiB, more than any device has. A larger
/// length is garbage.
pub const STREAM_BYTES_MAX: u64 = 1 << 46;

/// Size of the arguments of one launch in bytes. Drivers take 1,024 to 4,352 bytes of arguments by
/// value; a memory argument costs 16 bytes here.
pub const ARGS_BYTES_MAX: u64 = 256 << 10;

/// Largest index of an argument of a kernel. CUDA's limit is 32,764 bytes of parameters, so at most
/// 4,096 pointers; OpenCL drivers take fewer.
pub const ARG_INDEX_MAX: u32 = 8_191;

/// Size of the source, binary or IL of a program, and of build options, in bytes. The largest seen,
/// that of a deep-learning library, was 40 MB.
pub const PROGRAM_BYTES_MAX: u64 = 256 << 20;

/// Size of the files that one program includes, with their paths, in bytes. 16 builds of a session
/// run at the same time. Together they take half of the 1 GiB that a session's folder may have.
pub const HEADERS_BYTES_MAX: u64 = 32 << 20;

/// Number of files, links and folders that one program includes or goes through. 16 builds at the
/// same time make half of the 262,144 that a session's folder may have. The largest library of
/// kernels that we know has 700 files.
pub const HEADER_ENTRIES_MAX: usize = 8_192;

/// Size of the path of an included file in bytes. Linux takes 4,096 (`PATH_MAX`), and the worker
/// puts the path of its own folder in front.
pub const HEADER_PATH_BYTES_MAX: usize = 3_072;

/// Number of components of the path of an included file. Paths that people make have some twenty.
pub const HEADER_DEPTH_MAX: usize = 128;

/// Size of the included files that a worker keeps for programs whose build has not begun, in bytes:
/// those of 16 programs of the largest size.
pub const HEADERS_WAITING_BYTES_MAX: u64 = 16 * HEADERS_BYTES_MAX;

/// Size of a reply in bytes: twice that of a program, because a reply may carry the program's
/// binaries.
pub const REPLY_BYTES_MAX: u64 = 512 << 20;

/// Size of small structured payloads (device lists, image descriptions, peer addresses) in bytes.
pub const SMALL_BYTES_MAX: u64 = 64 << 10;

/// Size of one frame of kernel output in bytes. Longer output is split into several frames.
pub const OUTPUT_BYTES_MAX: u64 = 64 << 10;

/// Size of a node's description in bytes. 64 devices of 16 KiB are 1 MiB; four times that leaves
/// room for long extension strings.
pub const DESCRIPTION_BYTES_MAX: usize = 4 << 20;

/// Number of operands of one call of a library. Products have three matrices and two factors in
/// device memory; eight leave room.
pub const LIBRARY_OPERANDS_MAX: usize = 8;

/// Number of arenas that the addresses of one call of a library lead to: those of one device of a
/// CUDA program.
pub const LIBRARY_ARENAS_MAX: usize = 32;

/// Size of the payload of a call of a library in bytes. The largest call has some 150 bytes, and an
/// operand or an arena has at most 30.
pub const LIBRARY_CALL_BYTES_MAX: u64 = 4 << 10;

/// Size of a fill pattern in bytes: that of the largest OpenCL vectors, double16 and long16.
pub const PATTERN_BYTES_MAX: usize = 128;

/// Number of objects of one kind in one session. A program with a million buffers has a leak.
pub const OBJECTS_PER_SESSION_MAX: usize = 1 << 20;

/// Number of events in one session that are not yet released. Each takes some 200 bytes in the
/// worker, at worst 800 MB in all.
pub const EVENTS_PER_SESSION_MAX: usize = 4 << 20;

/// Number of bytes that a worker holds for one client between link and device: sixteen transfers of
/// 64 MiB. At the limit the worker stops reading from the link until commands complete. Content
/// from other nodes that arrived before its target was ready has a separate limit of the same size.
pub const STAGED_BYTES_MAX: u64 = 1 << 30;

/// The limit that replaces [`STAGED_BYTES_MAX`] while commands wait for an end that only the client
/// can tell (a user event). That end may come behind their bytes on the link, so waiting would free
/// nothing. A program that has more bytes behind one user event ends with an error that names this
/// limit; otherwise it would hang.
pub const GATED_BYTES_MAX: u64 = 4 * STAGED_BYTES_MAX;

/// Number of commands of one session that may be on their way to the devices. Each takes some 1 KiB
/// in drivers, 64 MiB in all. [`WAITS_PER_COMMAND`] entries of wait lists count as one command. At
/// the limit the worker reads no further commands until some have ended. If that may depend on a
/// later message of the client, four times as many may be on their way. The session ends at that
/// number if none ends for a minute.
pub const COMMANDS_IN_FLIGHT_MAX: u64 = 1 << 16;

/// Number of entries of wait lists that count as one command. Each entry takes some 60 bytes in the
/// worker and its driver.
pub const WAITS_PER_COMMAND: usize = 16;

/// Total size of the memory objects of one session, in multiples of the memory of all devices of
/// the node (`CL_DEVICE_GLOBAL_MEM_SIZE`). A program that needs more than 1 fails on the devices
/// themselves. Buffers that client and worker share are the client's own memory and do not count.
pub const MEMORY_SHARE_MAX: u64 = 1;

/// Number of devices in one symmetric heap. The flags of a barrier have a line of 64 bytes for each
/// device, and one word of 64 bits names all of them.
pub const HEAP_PES_MAX: usize = 64;

/// Number of symmetric heaps in one session. Each takes one file descriptor for its memory and one
/// for each other member, and at most two threads. With 64 members that is 66 descriptors, 3,960 in
/// all. More than a hundred remain of the 4,096 that a process may have under the hard limit of
/// usual systems.
pub const HEAPS_PER_SESSION_MAX: usize = 60;

/// Size of each device's part of a heap in bytes: 1 TiB. The addresses of [`HEAP_PES_MAX`] parts
/// (64 TiB) fit twice into the 47-bit address space of a process.
pub const HEAP_BYTES_MAX: u64 = 1 << 40;

/// Longest time that a kernel may wait inside a heap before it gives up, in ms: ten minutes. Only
/// the abort word can stop a kernel from outside, and a program that waits longer than this hangs.
pub const HEAP_TIMEOUT_MS_MAX: u32 = 600_000;

/// Size of the reason of a heap's abort in bytes: a sentence or two.
pub const HEAP_REASON_BYTES_MAX: u64 = 1 << 10;

/// Number of links of one session to workers of other clients. Each is a link with a thread. A
/// session of a program with a thousand ranks has one link in each direction to each of 512 ranks.
/// At the limit a further link is refused, and the bytes go another way.
pub const GRANT_LINKS_MAX: usize = 1024;

/// Number of grants of one session that workers of other clients have not used yet, and of its own
/// claims. A rank that exchanges 16 messages at a time with each of its 26 neighbours in a grid has
/// 416; ten times as many leave room. At the limit a further grant or claim is refused, and its
/// message goes another way.
pub const GRANTS_PER_SESSION_MAX: usize = 4_096;

/// Size of the answers to claims that a worker of another client has not yet taken, in bytes. Each
/// of [`GRANTS_PER_SESSION_MAX`] claims has one answer, of less than 256 bytes. At the limit the
/// link ends.
pub const CLAIM_ANSWERS_BYTES_MAX: usize = 256 * GRANTS_PER_SESSION_MAX;

/// Size of a worker's messages that its client has not yet taken, in bytes: a million completions.
/// A client takes them with each of its waits, and occasionally while it sends. At the limit its
/// session ends.
pub const UNTAKEN_BYTES_MAX: usize = 256 << 20;

/// Time that a peer has for its hello, in ms. Four round trips of 300 ms (a satellite) fit four
/// times.
pub const HELLO_MS_MAX: u64 = 5_000;

/// Number of connections whose hello a daemon has not yet completed. If there are more, the oldest
/// one of the source that has the most gives way. Each that has spoken takes a thread with 128 KiB
/// of stack, 32 MiB in all.
pub const PENDING_HELLOS_MAX: usize = 256;

/// Time in ms for which a one-time key of a bridge is good. A client uses it one round trip after
/// it has come, and a busy machine takes some seconds for that.
pub const INVITATION_MS_MAX: u64 = 30_000;

/// Number of one-time keys of a daemon that are neither used nor expired. Each is a login of the
/// daemon's own user, and the daemon has no more sessions than this for them. A key takes some 100
/// bytes.
pub const INVITATIONS_MAX: usize = SESSIONS_PER_DAEMON_MAX;

/// Number of addresses of its host at which a daemon listens for clients with one-time keys. Each
/// takes a thread and a descriptor as long as such a key is good, and a host has about as many
/// networks.
pub const INVITING_ADDRESSES_MAX: usize = 8;

/// Number of sessions of one daemon. Each is a process of some 60 MB with a driver loaded, 16 GB in
/// all.
pub const SESSIONS_PER_DAEMON_MAX: usize = 256;

/// Number of clients that wait in a daemon's line for a worker; the daemon refuses one more. Each
/// takes a descriptor and some 100 bytes in the daemon. With a descriptor for the control socket of
/// each of 256 sessions and two for each of 256 hellos, that is some 1,300 of the 4,096 descriptors
/// that a process may have on the strictest of usual systems.
pub const CLIENTS_IN_LINE_MAX: usize = 512;

/// Interval in ms at which a daemon tells a client in line that the daemon lives and where the
/// client stands. A full line costs the daemon 512 messages of 6 bytes each second.
pub const LINE_NOTE_MS: u64 = 1_000;

/// Interval in ms at which a worker sends a sign of life to its client and to the workers that it
/// has links to. Its thread wakes up that often, and a frame has 16 bytes.
pub const BEAT_MS: u64 = 5_000;

/// Time in s after which a process that waits for a silent worker takes the worker for dead, unless
/// `PENSTOCK_SILENCE_S` says otherwise: six messages of [`BEAT_MS`] are missing. A worker has a
/// thread of its own for them, so no driver holds them up. A host with a hundred busy processes per
/// core lets each of them run within a second, and one that swaps can keep any thread from running
/// for several seconds.
pub const SILENCE_S_DEFAULT: u64 = 6 * BEAT_MS / 1_000;

/// Time in ms after which a client in line takes a silent daemon for dead or stopped: ten messages
/// of [`LINE_NOTE_MS`] are missing. On a machine with a hundred busy processes per core, a process
/// waits for its turn for less than a second.
pub const LINE_SILENCE_MS_MAX: u64 = 10 * LINE_NOTE_MS;
