use penstock_cl_sys::{
    CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, CL_SAMPLER_ADDRESSING_MODE, CL_SAMPLER_FILTER_MODE,
    CL_SAMPLER_NORMALIZED_COORDS, CL_TRUE, cl_sampler,
};
use penstock_wire::status::Status;

use super::api::{self, function};
use super::context::Context;
use super::owned::OwnedSampler;
use crate::driver::SamplerDriver;

#[derive(Debug)]
pub(super) struct Sampler {
    raw: OwnedSampler,
    // Dropped after the sampler.
    _context: Context,
}

impl SamplerDriver for Sampler {}

impl Sampler {
    /// `clCreateSamplerWithProperties`. `properties` are pairs, without the final 0.
    pub(super) fn new(context: &Context, properties: &[u64]) -> Result<Self, Status> {
        let mut code = 0;
        let raw = if context.platform().is_at_least(2, 0) {
            let create = function!(clCreateSamplerWithProperties)?;
            let list: Vec<u64> = properties.iter().copied().chain([0]).collect();
            // SAFETY: the context lives, and the list ends with 0.
            unsafe { create(context.raw(), list.as_ptr(), &mut code) }
        } else {
            let create = function!(clCreateSampler)?;
            let (normalized, addressing, filter) = old_properties(properties)?;
            // SAFETY: the context lives.
            unsafe { create(context.raw(), normalized, addressing, filter, &mut code) }
        };
        let raw = OwnedSampler::take(api::made(raw, code)?);
        Ok(Self { raw, _context: context.clone() })
    }

    pub(super) fn raw(&self) -> cl_sampler {
        self.raw.raw()
    }
}

/// Returns the arguments of `clCreateSampler`, with the list's defaults.
fn old_properties(properties: &[u64]) -> Result<(u32, u32, u32), Status> {
    let (mut normalized, mut addressing, mut filter) =
        (CL_TRUE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST);
    for pair in properties.chunks_exact(2) {
        let &[name, value] = pair else { continue };
        let name = u32::try_from(name).map_err(|_| Status::INVALID_VALUE)?;
        let value = u32::try_from(value).map_err(|_| Status::INVALID_VALUE)?;
        match name {
            CL_SAMPLER_NORMALIZED_COORDS => normalized = value,
            CL_SAMPLER_ADDRESSING_MODE => addressing = value,
            CL_SAMPLER_FILTER_MODE => filter = value,
            _ => return Err(Status::INVALID_VALUE),
        }
    }
    Ok((normalized, addressing, filter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_become_arguments() {
        let list =
            [u64::from(CL_SAMPLER_NORMALIZED_COORDS), 0, u64::from(CL_SAMPLER_FILTER_MODE), 0x1141];
        assert_eq!(old_properties(&list), Ok((0, CL_ADDRESS_CLAMP, 0x1141)));
        assert!(old_properties(&[7, 7]).is_err());
        assert!(old_properties(&[u64::MAX, 7]).is_err());
    }
}
