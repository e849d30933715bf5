//! Linking as far as it needs no machine code: modules of PTX are joined as text.

use penstock_cuda_sys::driver::*;
use penstock_process::{Lock, log};

use super::program::{Refusal, ptx_of};
use crate::edge::{CuResult, has_handle};

pub(crate) struct Link {
    number: u64,
    inputs: Lock<Vec<Box<str>>>,
    /// The result of `cuLinkComplete`, with a terminating 0. It lives as long as the link.
    output: Lock<Option<Box<[u8]>>>,
}

has_handle!(Link: CUlinkState_st, CUDA_ERROR_INVALID_HANDLE);

impl Link {
    pub(crate) fn new(number: u64) -> Self {
        Self { number, inputs: Lock::default(), output: Lock::default() }
    }

    /// Implements `cuLinkAddData`: accepts PTX, or a fat binary with PTX.
    pub(crate) fn add(&self, bytes: &[u8]) -> Result<(), Refusal> {
        let text = ptx_of(bytes)?;
        penstock_ptx::module::parse(&text)
            .map_err(|error| Refusal { code: CUDA_ERROR_INVALID_PTX, log: error.to_string() })?;
        self.inputs.lock().push(text);
        Ok(())
    }

    /// Implements `cuLinkComplete`: returns address and size of the result.
    pub(crate) fn complete(&self) -> CuResult<(*const u8, usize)> {
        let inputs = self.inputs.lock();
        let text = joined(&inputs)?;
        let mut output = self.output.lock();
        let bytes = output.get_or_insert_with(|| [text.as_bytes(), &[0]].concat().into());
        Ok((bytes.as_ptr(), bytes.len()))
    }
}

/// Joins modules: the directives of the first, and the bodies of all. If two modules define the
/// same name, the parser rejects the result here.
fn joined(inputs: &[Box<str>]) -> CuResult<String> {
    let Some((first, others)) = inputs.split_first() else { return Err(CUDA_ERROR_INVALID_IMAGE) };
    let mut text = first.to_string();
    for other in others {
        let body = other.lines().filter(|line| {
            let line = line.trim_start();
            ![".version", ".target", ".address_size"].iter().any(|word| line.starts_with(word))
        });
        text.push('\n');
        body.for_each(|line| {
            text.push_str(line);
            text.push('\n');
        });
    }
    if let Err(error) = penstock_ptx::module::parse(&text) {
        log!(Warn, "modules that cannot be linked: {error}");
        return Err(CUDA_ERROR_INVALID_PTX);
    }
    Ok(text)
}
