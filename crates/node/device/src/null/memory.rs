//! Buffers: ranges of the host's memory.

use std::ptr::NonNull;
use std::sync::Arc;

use penstock_cl_sys::CL_MISALIGNED_SUB_BUFFER_OFFSET;
use penstock_wire::status::Status;

use crate::account::Share;
use crate::driver::{Backing, Mem, MemDriver};
use crate::home::{Home, Mapping};
use crate::region::Placed;

/// Alignment of buffers: OpenCL's largest type has 128 bytes.
pub(super) const ALIGNMENT_BYTES: usize = 128;
/// Bytes that are moved at a time: what the caches of a core hold beside everything else.
pub(super) const PIECE_BYTES: usize = 16 << 10;

struct Storage {
    mapping: Mapping,
    /// Kept until the memory is free.
    _share: Option<Share>,
}

/// A buffer or sub-buffer. A command that uses it keeps it.
pub(super) struct Buffer {
    storage: Arc<Storage>,
    offset: usize,
    bytes: usize,
}

impl Buffer {
    pub(super) fn new(bytes: usize, backing: Backing) -> Result<Arc<Self>, Status> {
        let (mapping, share) = match backing {
            Backing::Device(share) => (Mapping::zeroed(bytes)?, Some(share)),
            Backing::Home(mapping, share) => (mapping, share),
        };
        let storage = Arc::new(Storage { mapping, _share: share });
        Ok(Arc::new(Self { storage, offset: 0, bytes }))
    }

    fn home(&self) -> Result<Home<'_>, Status> {
        let mapping = &self.storage.mapping;
        let start = NonNull::new(mapping.address()).ok_or(Status::INVALID_MEM_OBJECT)?;
        Home::part(start, mapping.bytes(), self.offset, self.bytes).ok_or(Status::INVALID_VALUE)
    }

    /// Copies bytes out. Fails if they are out of bounds, as only those of a kernel can be.
    pub(super) fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Status> {
        self.home()?.read(offset as u64, into).map_err(|_| Status::OUT_OF_RESOURCES)
    }

    /// As [`Buffer::read`], in the other direction.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Status> {
        self.home()?.write(offset as u64, bytes).map_err(|_| Status::OUT_OF_RESOURCES)
    }
}

/// Returns the buffer of an object.
pub(super) fn buffer(mem: &Mem) -> Result<Arc<Buffer>, Status> {
    mem.driver::<Arc<Buffer>>().cloned()
}

impl MemDriver for Arc<Buffer> {
    fn part(&self, _flags: u64, offset: usize, bytes: usize) -> Result<Box<dyn MemDriver>, Status> {
        // "CL_MISALIGNED_SUB_BUFFER_OFFSET if there are no devices in context associated with
        // buffer for which the origin field ... is aligned to the CL_DEVICE_MEM_BASE_ADDR_ALIGN
        // value."
        if !offset.is_multiple_of(ALIGNMENT_BYTES) {
            return Err(Status(CL_MISALIGNED_SUB_BUFFER_OFFSET));
        }
        let (storage, offset) = (self.storage.clone(), self.offset + offset);
        Ok(Box::new(Arc::new(Buffer { storage, offset, bytes })))
    }

    fn init(&self, offset: usize, bytes: &[u8]) -> Result<(), Status> {
        self.write(offset, bytes)
    }

    fn device_address(&self) -> Result<u64, Status> {
        Err(Status::INVALID_OPERATION)
    }
}

/// Rows of equal length in a buffer, all of them within its bounds.
pub(super) struct Rows {
    pub(super) buffer: Arc<Buffer>,
    pub(super) at: Placed,
    pub(super) region: [usize; 3],
}

impl Rows {
    /// Makes one row.
    pub(super) fn line(mem: &Mem, offset: usize, bytes: usize) -> Result<Self, Status> {
        let at = Placed { origin: [offset, 0, 0], row_pitch: bytes, slice_pitch: bytes };
        Self::rect(mem, at, [bytes, 1, 1])
    }

    pub(super) fn rect(mem: &Mem, at: Placed, region: [usize; 3]) -> Result<Self, Status> {
        Ok(Self { buffer: buffer(mem)?, at, region })
    }

    /// Returns the number of bytes in each row.
    pub(super) fn width(&self) -> usize {
        self.region[0]
    }

    /// Returns where each row starts.
    pub(super) fn starts(&self) -> impl Iterator<Item = usize> {
        let (at, [_, height, depth]) = (self.at, self.region);
        let [x, y, z] = at.origin;
        (z..z + depth).flat_map(move |slice| {
            (y..y + height).map(move |row| x + row * at.row_pitch + slice * at.slice_pitch)
        })
    }
}
