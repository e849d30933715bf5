//! Linking, as far as it is translation: one module of PTX goes through as it is.

use std::sync::{Mutex, PoisonError};

use penstock_cuda_sys::driver::*;

use super::log;
use super::program::{Refusal, ptx_of};
use crate::edge::{CuResult, Object};

/// Behind a `CUlinkState`.
pub(crate) struct Link {
    number: u64,
    inputs: Mutex<Vec<Box<str>>>,
    /// What `cuLinkComplete` gave out: it lives as long as this. With a 0 at its end.
    output: Mutex<Option<Box<[u8]>>>,
}

impl Object for Link {
    type Raw = CUlinkState_st;
    const INVALID: CUresult = CUDA_ERROR_INVALID_HANDLE;

    fn number(&self) -> u64 {
        self.number
    }
}

impl Link {
    pub(crate) fn new(number: u64) -> Self {
        Self { number, inputs: Mutex::default(), output: Mutex::default() }
    }

    /// `cuLinkAddData`: PTX, or a fat binary with PTX.
    pub(crate) fn add(&self, bytes: &[u8]) -> Result<(), Refusal> {
        let text = ptx_of(bytes)?;
        penstock_ptx::module::parse(&text)
            .map_err(|error| Refusal { code: CUDA_ERROR_INVALID_PTX, log: error.to_string() })?;
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        Ok(())
    }

    /// `cuLinkComplete`: address and size of the result.
    pub(crate) fn complete(&self) -> CuResult<(*const u8, usize)> {
        let inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        let text = joined(&inputs)?;
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = output.get_or_insert_with(|| [text.as_bytes(), &[0]].concat().into());
        Ok((bytes.as_ptr(), bytes.len()))
    }
}

/// Several modules as one: the directives of the first, the bodies of all. Names that two of them define are an error of the
/// parser when the result is loaded.
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
        log::line(format_args!("modules that cannot be linked: {error}"));
        return Err(CUDA_ERROR_INVALID_PTX);
    }
    Ok(text)
}
