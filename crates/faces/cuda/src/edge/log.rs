//! Messages of a compiler or linker for the program, in the buffers that its options name.

use std::ffi::{c_uint, c_void};
use std::time::Duration;

use penstock_cuda_sys::driver::*;

use super::error::CuResult;
use super::memory::{Bytes, array, store};

/// Where the program wants messages.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    errors: Sink,
    notes: Sink,
    /// Address of the option for the time, or 0.
    time_at: usize,
    /// Time that was spent so far. `None` if nobody measures it.
    time: Option<Duration>,
}

/// One buffer for messages.
#[derive(Debug, Default)]
struct Sink {
    buffer: Option<Bytes>,
    /// Address of the option with the size of the buffer and later the number of bytes written, or
    /// 0.
    size_at: usize,
    written: usize,
}

impl Logs {
    /// Finds the buffers among options.
    ///
    /// # Safety
    /// The options are as the interface demands, and stay valid while the result is used.
    pub(crate) unsafe fn of(
        count: c_uint,
        names: *const c_uint,
        values: *mut *mut c_void,
    ) -> CuResult<Self> {
        // SAFETY: the caller promises that `names` and `values` are null or have `count` elements.
        let (names, given) =
            unsafe { (array(names, count as usize)?, array(values, count as usize)?) };
        let find = |wanted| names.iter().position(|name| *name == wanted);
        let address = |index: usize| values.wrapping_add(index).expose_provenance();
        let sink = |buffer, size| {
            let size = find(size);
            let bytes = size.and_then(|at| given.get(at)).map_or(0, |it| it.addr() & 0xffff_ffff);
            let buffer = find(buffer).and_then(|at| given.get(at)).filter(|it| !it.is_null());
            // SAFETY: the program promises a buffer of this size.
            let buffer = buffer.map(|at| unsafe { Bytes::new(*at, bytes) }).transpose()?;
            Ok(Sink { buffer, size_at: size.map_or(0, address), written: 0 })
        };
        Ok(Self {
            errors: sink(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)?,
            notes: sink(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES)?,
            time_at: find(CU_JIT_WALL_TIME).map_or(0, address),
            time: None,
        })
    }

    /// Adds an error. Returns whether the program gave a buffer for it.
    pub(crate) fn error(&mut self, text: &str) -> bool {
        self.errors.add(text)
    }

    /// Adds a message that is no error.
    pub(crate) fn note(&mut self, text: &str) {
        _ = self.notes.add(text);
    }

    /// Adds time that was spent for the program.
    pub(crate) fn spend(&mut self, time: Duration) {
        *self.time.get_or_insert_default() += time;
    }

    /// Tells the program how much its buffers hold, and the time: "Amount of log buffer filled with
    /// messages", "overwrites the option value with the total wall clock time, in milliseconds".
    pub(crate) fn settle(&self) {
        for sink in [&self.errors, &self.notes] {
            let place = std::ptr::with_exposed_provenance_mut::<*mut c_void>(sink.size_at);
            // SAFETY: null, or an element of the program's array, which is still valid.
            unsafe { store(place, std::ptr::without_provenance_mut(sink.written)) };
        }
        let place = std::ptr::with_exposed_provenance_mut::<f32>(self.time_at);
        if let Some(time) = self.time {
            // SAFETY: as above. The option's type is `float`.
            unsafe { store(place, time.as_secs_f32() * 1000.0) };
        }
    }
}

impl Sink {
    /// Writes a text behind the others, as far as there is room. "Log messages will be capped at
    /// this size (including null terminator)."
    fn add(&mut self, text: &str) -> bool {
        let Some(buffer) = self.buffer.filter(|buffer| buffer.size() > 0) else { return false };
        let rest = buffer.part(self.written, usize::MAX);
        let before = if self.written > 0 && !text.is_empty() { "\n" } else { "" };
        let whole = [before.as_bytes(), text.as_bytes()].concat();
        let cut = whole.get(..rest.size().saturating_sub(1)).unwrap_or(&whole);
        rest.write(&[cut, &[0]].concat());
        self.written += cut.len();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_follow_each_other_and_end_with_the_buffer() {
        let mut buffer = [7_u8; 8];
        let names = [CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_WALL_TIME];
        let mut values: [*mut c_void; 3] = [
            std::ptr::without_provenance_mut(7),
            buffer.as_mut_ptr().cast(),
            std::ptr::without_provenance_mut(usize::MAX),
        ];
        // SAFETY: the options and the buffer outlive the result.
        let mut logs = unsafe { Logs::of(3, names.as_ptr(), values.as_mut_ptr()) }.unwrap();
        assert!(logs.error("ab"));
        assert!(logs.error("cdefg"));
        assert!(logs.error("h"));
        logs.note("nobody reads this");
        logs.settle();
        assert_eq!(values[0].addr(), 6);
        assert_eq!(values[2].addr(), usize::MAX, "nobody has measured the time");
        logs.spend(Duration::from_millis(2));
        logs.settle();
        assert_eq!(values[2].addr() & 0xffff_ffff, 2.0_f32.to_bits() as usize);
        assert_eq!(&buffer, b"ab\ncde\0\x07");
        assert!(!Logs::default().error("without a buffer"));
    }
}
