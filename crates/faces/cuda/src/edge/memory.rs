//! The only code that accesses the program's memory through its pointers.

use std::ffi::{CStr, c_char, c_void};

use penstock_client::{HostShape, Source, Target};
use penstock_cuda_sys::driver::CUDA_ERROR_INVALID_VALUE;
use penstock_wire::{FrameError, Payload};

use super::error::CuResult;

/// Stores a result if `place` is not `NULL`.
///
/// # Safety
/// `place` is `NULL` or writable.
pub(crate) unsafe fn store<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller promises that `place` is writable. Unaligned, because C programs may
        // pack structures.
        unsafe { place.write_unaligned(value) };
    }
}

/// Reads a value of the program. Fails with `CUDA_ERROR_INVALID_VALUE` if `place` is `NULL`.
///
/// # Safety
/// `place` is `NULL` or leads to a valid value.
pub(crate) unsafe fn load<T: Copy>(place: *const T) -> CuResult<T> {
    if place.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and the caller promises a valid value there.
    Ok(unsafe { place.read_unaligned() })
}

/// Returns the array of `count` elements at `pointer`. Fails with `CUDA_ERROR_INVALID_VALUE` if it
/// is `NULL`, unaligned or too long.
///
/// # Safety
/// `pointer` is `NULL` or leads to `count` elements, which do not change while the result is used.
pub(crate) unsafe fn array<'a, T>(pointer: *const T, count: usize) -> CuResult<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    let fits =
        count.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if pointer.is_null() || !pointer.is_aligned() || !fits {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: alignment and size are checked above, and the caller promises the elements.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Returns the string at `pointer`. Fails with `CUDA_ERROR_INVALID_VALUE` if it is `NULL`.
///
/// # Safety
/// `pointer` is `NULL` or leads to a string with a terminating 0 that does not change while the
/// result is used.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> CuResult<&'a CStr> {
    if pointer.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and the caller promises a string there.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

/// A pointer that the program wants to get back in its callback. We only pass it on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserData(*mut c_void);

// SAFETY: nothing here accesses memory through the pointer. The program decides what its callback
// does in another thread.
unsafe impl Send for UserData {}
// SAFETY: shared access does not access memory through the pointer, either.
unsafe impl Sync for UserData {}

impl UserData {
    pub(crate) const fn new(pointer: *mut c_void) -> Self {
        Self(pointer)
    }

    // A method, because a closure that used the field would capture the pointer without its
    // wrapper.
    pub(crate) const fn get(self) -> *mut c_void {
        self.0
    }
}

/// A function of the program, with its argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCall {
    function: unsafe extern "C" fn(*mut c_void),
    data: UserData,
}

impl HostCall {
    /// # Safety
    /// The function may be called with `data` in any thread while the program's description of the
    /// call lives.
    pub(crate) const unsafe fn new(
        function: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> Self {
        Self { function, data: UserData::new(data) }
    }

    pub(crate) fn call(self) {
        // SAFETY: the caller of `new` promised that the function may be called with this argument.
        unsafe { (self.function)(self.data.get()) };
    }

    /// Returns the function and its argument.
    pub(crate) fn parts(self) -> (unsafe extern "C" fn(*mut c_void), *mut c_void) {
        (self.function, self.data.get())
    }
}

/// Memory of the program that a copy reads or writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes {
    address: usize,
    size: usize,
}

impl Bytes {
    /// # Safety
    /// The program's promise for a copy: there are `size` bytes, nobody else changes them before
    /// the copy has ended, and they are writable if the copy writes them.
    pub(crate) unsafe fn new(address: *const c_void, size: usize) -> CuResult<Self> {
        let end = address.addr().checked_add(size);
        if (address.is_null() && size > 0) || end.is_none_or(|end| isize::try_from(end).is_err()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Exposed, because we keep only the address of the program's memory.
        Ok(Self { address: address.expose_provenance(), size })
    }

    pub(crate) fn address(self) -> usize {
        self.address
    }

    pub(crate) fn size(self) -> usize {
        self.size
    }

    /// Returns the bytes for reading.
    pub(crate) fn read<'a>(self) -> &'a [u8] {
        if self.size == 0 {
            return &[];
        }
        // SAFETY: the caller of `new` promised `size` readable bytes.
        unsafe {
            std::slice::from_raw_parts(std::ptr::with_exposed_provenance(self.address), self.size)
        }
    }

    /// Returns `size` bytes from `offset` on, or as many as there are.
    pub(crate) fn part(self, offset: usize, size: usize) -> Self {
        let offset = offset.min(self.size);
        Self { address: self.address + offset, size: size.min(self.size - offset) }
    }

    /// Copies bytes of the program. The two ranges may overlap.
    pub(crate) fn copy_from(self, from: Self) {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.address);
        let source = std::ptr::with_exposed_provenance::<u8>(from.address);
        // SAFETY: the callers of `new` promised both ranges, and the size is that of the smaller
        // one.
        unsafe { std::ptr::copy(source, to, self.size.min(from.size)) };
    }

    /// Sets all bytes to 0.
    pub(crate) fn clear(self) {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.address);
        // SAFETY: the caller of `new` promised the range.
        unsafe { to.write_bytes(0, self.size) };
    }

    /// Writes bytes at the beginning, as many as fit.
    pub(crate) fn write(self, from: &[u8]) {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.address);
        // SAFETY: the caller of `new` promised the range, and `from` is not memory of the program.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, self.size.min(from.len())) };
    }
}

fn shape(bytes: Bytes, width: usize, pitch: usize) -> HostShape {
    let rows = if pitch == 0 || bytes.size == width { 1 } else { (bytes.size - width) / pitch + 1 };
    HostShape {
        start: bytes.address as u64,
        row: width as u64,
        rows: rows as u64,
        row_pitch: pitch as u64,
        slices: 1,
        slice_pitch: bytes.size as u64,
    }
}

/// The source of a write: rows of `width` bytes in the program's memory, `pitch` bytes apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostSource {
    from: Bytes,
    width: usize,
    pitch: usize,
    /// Whether the program may change the bytes as soon as the function of the copy returns.
    is_taken_now: bool,
}

impl HostSource {
    /// All bytes of `from`, in one row.
    pub(crate) fn linear(from: Bytes) -> Self {
        Self { width: from.size, pitch: from.size, from, is_taken_now: false }
    }

    /// Rows of `width` bytes, whose starts are `pitch` bytes apart.
    pub(crate) fn rows(from: Bytes, width: usize, pitch: usize) -> Self {
        Self { from, width, pitch, is_taken_now: false }
    }

    /// Sets whether the bytes are taken before the function of the copy returns.
    pub(crate) fn taken_now(self, is_taken_now: bool) -> Self {
        Self { is_taken_now, ..self }
    }

    pub(crate) fn address(&self) -> usize {
        self.from.address
    }

    /// Returns the number of bytes from the first to the last one.
    pub(crate) fn reach(&self) -> usize {
        self.from.size
    }

    /// Returns where its bytes are.
    pub(crate) fn shape(&self) -> HostShape {
        shape(self.from, self.width, self.pitch)
    }
}

impl Source for HostSource {
    fn bytes(&self) -> u64 {
        let HostShape { row, rows, .. } = self.shape();
        row * rows
    }

    fn shape(&self) -> Option<HostShape> {
        (!self.is_taken_now).then(|| self.shape())
    }

    fn linear(&self) -> Option<&[u8]> {
        (self.width == self.from.size).then(|| self.from.read())
    }

    fn pieces(&self) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        let bytes = self.from.read();
        Box::new(
            (0..self.from.size)
                .step_by(self.pitch.max(1))
                .filter_map(move |start| bytes.get(start..start.checked_add(self.width)?)),
        )
    }

    fn keep(&self) -> Box<dyn Source + Send> {
        if self.is_taken_now {
            Box::new(Taken(self.pieces().map(Box::from).collect()))
        } else {
            Box::new(*self)
        }
    }
}

/// Rows that were copied from the program's memory.
struct Taken(Vec<Box<[u8]>>);

impl Source for Taken {
    fn bytes(&self) -> u64 {
        self.0.iter().map(|row| row.len() as u64).sum()
    }

    fn shape(&self) -> Option<HostShape> {
        None
    }

    fn linear(&self) -> Option<&[u8]> {
        if let [row] = self.0.as_slice() { Some(row) } else { None }
    }

    fn pieces(&self) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        Box::new(self.0.iter().map(|row| &**row))
    }

    fn keep(&self) -> Box<dyn Source + Send> {
        Box::new(Self(self.0.clone()))
    }
}

/// The target of a read: rows of `width` bytes in the program's memory, `pitch` bytes apart.
pub(crate) struct HostTarget {
    to: Bytes,
    width: usize,
    pitch: usize,
}

impl HostTarget {
    /// All bytes of `to`, in one row.
    pub(crate) fn linear(to: Bytes) -> Box<Self> {
        Box::new(Self { width: to.size, pitch: to.size, to })
    }

    /// Rows of `width` bytes, whose starts are `pitch` bytes apart.
    pub(crate) fn rows(to: Bytes, width: usize, pitch: usize) -> Box<Self> {
        Box::new(Self { to, width, pitch })
    }
}

impl Target for HostTarget {
    fn shape(&self) -> Option<HostShape> {
        Some(shape(self.to, self.width, self.pitch))
    }

    fn take(&mut self, offset: u64, payload: &mut dyn Payload) -> Result<(), FrameError> {
        let range = usize::try_from(offset).ok().zip(usize::try_from(payload.left()).ok());
        let (mut at, mut left) = range.ok_or(FrameError::PayloadTooShort)?;
        let width = self.width.max(1);
        while left > 0 {
            let (row, within) = (at / width, at % width);
            let now = left.min(width - within);
            // These numbers come from the peer, so nothing outside of the read's range may be
            // written.
            let start = row.checked_mul(self.pitch).and_then(|start| start.checked_add(within));
            let start =
                start.filter(|start| start.checked_add(now).is_some_and(|end| end <= self.to.size));
            let start = start.ok_or(FrameError::BadPayload("ReadData"))?;
            let to = std::ptr::with_exposed_provenance_mut::<u8>(self.to.address + start);
            // SAFETY: within the bytes that the caller of `Bytes::new` promised; nobody else uses
            // them until the read has ended.
            payload.read(unsafe { std::slice::from_raw_parts_mut(to, now) })?;
            at += now;
            left -= now;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_where_their_pitch_says_and_nowhere_else() {
        let mut host = vec![0u8; 13];
        // SAFETY: `host` has 13 bytes and outlives the reads.
        let to = unsafe { Bytes::new(host.as_mut_ptr().cast(), 13) }.unwrap();
        let mut target = HostTarget::rows(to, 3, 5);
        let sent: Vec<u8> = (1..=9).collect();
        target.take(0, &mut &sent[..4]).unwrap();
        target.take(4, &mut &sent[4..]).unwrap();
        assert!(target.take(9, &mut &sent[..1]).is_err());
        assert!(target.take(u64::MAX, &mut &sent[..1]).is_err());
        assert_eq!(host, [1, 2, 3, 0, 0, 4, 5, 6, 0, 0, 7, 8, 9]);
    }

    #[test]
    fn null_and_impossible_arrays_are_refused() {
        // SAFETY: every pointer is rejected before any access, or `count` is 0.
        unsafe {
            assert!(Bytes::new(std::ptr::null(), 1).is_err());
            assert!(Bytes::new(std::ptr::without_provenance(8), usize::MAX).is_err());
            assert!(array::<u32>(std::ptr::null(), 1).is_err());
            assert!(array::<u32>(std::ptr::without_provenance(2), 1).is_err());
            assert_eq!(array::<u32>(std::ptr::null(), 0).unwrap(), []);
            assert!(load::<u32>(std::ptr::null()).is_err());
            assert!(text(std::ptr::null()).is_err());
        }
    }
}
