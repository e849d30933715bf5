//! Modules that are loaded, launched and unloaded at once.

use std::ffi::{c_uint, c_void};
use std::ptr::{null_mut, without_provenance_mut};

use penstock_cuda_sys::driver::CUmodule;

use super::{Driver, Handle, call, code, raw};
use crate::cuda::backend::Backend as _;
use crate::cuda::plan::Context;

/// A launch of a kernel whose arguments are memory and a number.
#[derive(Clone, Debug)]
pub struct Work {
    pub blocks: usize,
    pub block: usize,
    pub parameter: u32,
    /// The memory before the launch.
    pub memory: Vec<u32>,
}

/// A call that failed.
#[derive(Clone, Debug)]
pub struct Failed {
    pub call: String,
    pub code: i32,
}

/// `CU_JIT_ERROR_LOG_BUFFER` and `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`
const ERROR_LOG: c_uint = 5;
const ERROR_LOG_SIZE: c_uint = 6;
/// Bytes of the log of errors.
const LOG: usize = 1024;

/// Returns what makes a failure of this call.
fn failed(call: &str) -> impl Fn(i32) -> Failed + '_ {
    move |code| Failed { call: call.to_owned(), code }
}

impl Driver {
    /// Loads a module on a device, and launches its kernel with memory and a parameter. Returns the
    /// memory behind each launch.
    ///
    /// # Errors
    ///
    /// The call that failed, and its code.
    pub fn compute(
        &self,
        device: usize,
        text: &str,
        kernel: &str,
        launches: &[Work],
    ) -> Result<Vec<Vec<u32>>, Failed> {
        let context = self.context(Context { device, primary: true });
        let context = context.map_err(failed("cuDevicePrimaryCtxRetain"))?;
        code(call!(self, cuCtxSetCurrent(raw(context)))).map_err(failed("cuCtxSetCurrent"))?;
        let module = self.loaded(text)?;
        let (mut function, name) = (null_mut(), format!("{kernel}\0"));
        let found =
            call!(self, cuModuleGetFunction(&raw mut function, module, name.as_ptr().cast()));
        let done = code(found).map_err(failed("cuModuleGetFunction")).and_then(|()| {
            let function = Handle(function.expose_provenance());
            launches.iter().map(|work| self.launched(function, work)).collect()
        });
        let unloaded = code(call!(self, cuModuleUnload(module)));
        unloaded.map_err(failed("cuModuleUnload")).and(done)
    }

    /// Loads a module. The failure contains the log.
    fn loaded(&self, text: &str) -> Result<CUmodule, Failed> {
        let (mut module, text, mut log) = (null_mut(), format!("{text}\0"), [0_u8; LOG]);
        let mut options = [ERROR_LOG, ERROR_LOG_SIZE];
        // CUDA takes a number in the place of a pointer here.
        let mut values = [log.as_mut_ptr().cast(), without_provenance_mut::<c_void>(LOG)];
        let loaded = call!(
            self,
            cuModuleLoadDataEx(
                &raw mut module,
                text.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr()
            )
        );
        code(loaded).map_err(|code| {
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(LOG);
            let log = String::from_utf8_lossy(&log[..end]).trim().to_owned();
            Failed { call: format!("cuModuleLoadDataEx ({log})"), code }
        })?;
        Ok(module)
    }

    fn launched(&self, function: Handle, work: &Work) -> Result<Vec<u32>, Failed> {
        let (mut memory, mut parameter) = (0_u64, work.parameter);
        let mut words = work.memory.clone();
        let size = words.len() * size_of::<u32>();
        code(call!(self, cuMemAlloc_v2(&raw mut memory, size))).map_err(failed("cuMemAlloc"))?;
        let mut run = || {
            code(call!(self, cuMemcpyHtoD_v2(memory, words.as_ptr().cast(), size)))
                .map_err(failed("cuMemcpyHtoD"))?;
            let mut values: [*mut c_void; 2] =
                [(&raw mut memory).cast(), (&raw mut parameter).cast()];
            let count = |count: usize| c_uint::try_from(count).unwrap_or(c_uint::MAX);
            let size_of_grid = [count(work.blocks), count(work.block)];
            self.start(raw(function), size_of_grid, null_mut(), &mut values)
                .map_err(failed("cuLaunchKernel"))?;
            code(call!(self, cuCtxSynchronize())).map_err(failed("cuCtxSynchronize"))?;
            code(call!(self, cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), memory, size)))
                .map_err(failed("cuMemcpyDtoH"))
        };
        let ran = run();
        let freed = code(call!(self, cuMemFree_v2(memory))).map_err(failed("cuMemFree"));
        ran.and(freed).map(|()| words)
    }
}
