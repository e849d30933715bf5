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
            let OldProperties { normalized, addressing, filter } = OldProperties::of(properties)?;
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

/// The arguments of `clCreateSampler`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OldProperties {
    normalized: u32,
    addressing: u32,
    filter: u32,
}

impl OldProperties {
    /// Returns the arguments that a list of properties stands for. A property that the list lacks
    /// has its default.
    fn of(properties: &[u64]) -> Result<Self, Status> {
        let mut all =
            Self { normalized: CL_TRUE, addressing: CL_ADDRESS_CLAMP, filter: CL_FILTER_NEAREST };
        for pair in properties.chunks_exact(2) {
            let &[name, value] = pair else { continue };
            let name = u32::try_from(name).map_err(|_| Status::INVALID_VALUE)?;
            let value = u32::try_from(value).map_err(|_| Status::INVALID_VALUE)?;
            match name {
                CL_SAMPLER_NORMALIZED_COORDS => all.normalized = value,
                CL_SAMPLER_ADDRESSING_MODE => all.addressing = value,
                CL_SAMPLER_FILTER_MODE => all.filter = value,
                _ => return Err(Status::INVALID_VALUE),
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_become_arguments() {
        let list =
            [u64::from(CL_SAMPLER_NORMALIZED_COORDS), 0, u64::from(CL_SAMPLER_FILTER_MODE), 0x1141];
        let all = OldProperties { normalized: 0, addressing: CL_ADDRESS_CLAMP, filter: 0x1141 };
        assert_eq!(OldProperties::of(&list), Ok(all));
        assert!(OldProperties::of(&[7, 7]).is_err());
        assert!(OldProperties::of(&[u64::MAX, 7]).is_err());
    }
}
