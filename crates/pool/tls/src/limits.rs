//! Every limit of this crate, with its derivation.

/// Maximum number of content bytes in a record. RFC 8446, 5.1: "The length MUST NOT exceed 2^14
/// bytes."
pub const PLAIN_BYTES_MAX: usize = 1 << 14;

/// Number of bytes of a record's header: a type, a version, a length.
pub const HEADER_BYTES: usize = 5;

/// Number of bytes of an authentication tag. All suites of TLS 1.3 that Penstock speaks have the
/// same size.
pub const TAG_BYTES: usize = 16;

/// Number of bytes that a record has besides its content: header, content type, tag.
pub const RECORD_OVERHEAD_BYTES: usize = HEADER_BYTES + 1 + TAG_BYTES;

/// Maximum number of bytes behind a record's header. RFC 8446, 5.2: "The length MUST NOT exceed
/// 2^14 + 256 bytes."
pub const BODY_BYTES_MAX: usize = PLAIN_BYTES_MAX + 256;

/// Maximum number of bytes of a record that a peer sends.
pub const RECORD_BYTES_MAX: usize = HEADER_BYTES + BODY_BYTES_MAX;

/// Number of bytes of a record with a KeyUpdate: the message has a type, a length of three bytes,
/// and one byte of content.
pub const UPDATE_RECORD_BYTES: usize = RECORD_OVERHEAD_BYTES + 5;

/// Number of bytes of a record with an alert: a level and a description.
pub const ALERT_RECORD_BYTES: usize = RECORD_OVERHEAD_BYTES + 2;

/// Number of bytes of memory in which [`crate::Sealer::seal`] always makes progress: a record of
/// the largest size, and the KeyUpdate that may have to come before it.
pub const SEAL_BYTES_MIN: usize = PLAIN_BYTES_MAX + RECORD_OVERHEAD_BYTES + UPDATE_RECORD_BYTES;

/// Number of records that a key of AES-GCM may seal. RFC 8446, 5.5: "For AES-GCM, up to 2^24.5
/// full-size records (about 24 million) may be encrypted on a given connection while keeping a
/// safety margin of approximately 2^-57 for Authenticated Encryption (AE) security." The number is
/// the integer part of 2^24.5.
pub const AES_GCM_RECORDS_MAX: u64 = 23_726_566;

/// Number of records after which this side takes a new key of AES-GCM: 2^24, which is 70 % of
/// [`AES_GCM_RECORDS_MAX`]. So the peer, which counts the same records, never sees the limit.
pub const AES_GCM_UPDATE_RECORDS: u64 = 1 << 24;

/// Number of records that a key of ChaCha20-Poly1305 may seal. RFC 8446, 5.5: "For
/// ChaCha20/Poly1305, the record sequence number would wrap before the safety limit is reached."
/// And 5.3: "Because the size of sequence numbers is 64-bit, they should not wrap."
pub const CHACHA_RECORDS_MAX: u64 = u64::MAX;

/// Number of records after which this side takes a new key of ChaCha20-Poly1305: half of the
/// sequence numbers. No connection reaches it.
pub const CHACHA_UPDATE_RECORDS: u64 = 1 << 63;

/// Maximum number of records in a row that carry no data: KeyUpdates, tickets, empty records. Each
/// costs this side a key derivation or an AEAD of its own, and the peer's programs see nothing of
/// them. OpenSSL sends two tickets at the start; the limit leaves room for sixteen times that.
pub const IDLE_RECORDS_MAX: u32 = 32;

/// Maximum number of bytes of a NewSessionTicket, which this side skips. OpenSSL's have about 250
/// bytes, and more with a client's certificate in them.
pub const TICKET_BYTES_MAX: usize = 1 << 14;

/// Maximum number of bytes that a peer may send before its handshake is finished. A ClientHello has
/// about 250 bytes, the rest of a client's handshake 300, and all of a server's 550. The limit
/// leaves room for the hybrid key exchange of later versions, whose shares have 1,200 bytes.
pub const HANDSHAKE_BYTES_MAX: usize = 8 << 10;

/// Maximum number of bytes of an identity's file. The text has 119 bytes.
pub const IDENTITY_FILE_BYTES_MAX: u64 = 4 << 10;

/// Maximum number of bytes of a file of known nodes or authorized clients: 10,000 entries of 400
/// bytes.
pub const LIST_FILE_BYTES_MAX: u64 = 4 << 20;

/// Maximum number of bytes of a name in these files: an address has a host name of up to 253 bytes,
/// a scheme and a port.
pub const NAME_BYTES_MAX: usize = 300;
