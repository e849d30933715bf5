//! What programs written before CUDA 4.0 set on a function before they launch it.

use penstock_cuda_sys::driver::CUDA_ERROR_INVALID_VALUE;

use crate::edge::CuResult;

/// Block size and parameters of the next launch.
#[derive(Debug, Default)]
pub(crate) struct LaunchSetup {
    /// All 0 if not set.
    pub(crate) block: [u32; 3],
    /// Dynamic shared memory, in bytes.
    pub(crate) dynamic: u32,
    pub(crate) params: Vec<u8>,
}

impl LaunchSetup {
    /// Sets the size of the parameters. `end`: where the function's last parameter ends.
    pub(crate) fn resize(&mut self, bytes: usize, end: usize) -> CuResult {
        if bytes > end {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.params.resize(bytes, 0);
        Ok(())
    }

    /// Sets bytes of the parameters.
    pub(crate) fn put(&mut self, offset: usize, bytes: &[u8], end: usize) -> CuResult {
        let stop = offset.checked_add(bytes.len()).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if self.params.len() < stop {
            self.resize(stop, end)?;
        }
        let target = self.params.get_mut(offset..stop).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        target.copy_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_put_together_and_do_not_grow_beyond_the_functions() {
        let mut setup = LaunchSetup::default();
        setup.put(4, &[1, 2], 8).unwrap();
        setup.put(0, &[9], 8).unwrap();
        setup.put(6, &[], 8).unwrap();
        assert_eq!(setup.params, [9, 0, 0, 0, 1, 2]);
        assert!(setup.put(7, &[1, 2], 8).is_err() && setup.resize(9, 8).is_err());
        assert!(setup.put(usize::MAX, &[1], 8).is_err());
        setup.resize(8, 8).unwrap();
        assert_eq!(setup.params, [9, 0, 0, 0, 1, 2, 0, 0]);
    }
}
