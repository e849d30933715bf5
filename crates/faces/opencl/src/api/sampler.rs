//! Samplers.

use std::ffi::c_void;

use crate::core::context::Context;
use crate::core::sampler::Sampler;
use crate::edge::{
    Answer, ClError, ClResult, Handle, Object, Ref, cl_entry, functions, properties, require,
};
use penstock_cl_sys::*;

functions! {
    slots {
        clCreateSampler, clCreateSamplerWithProperties, clRetainSampler, clReleaseSampler,
        clGetSamplerInfo,
    }
}

cl_entry! {
    fn clCreateSamplerWithProperties(
        context: cl_context,
        list: *const cl_sampler_properties,
    ) -> ClResult<cl_sampler> {
        let context = Context::borrow(context)?;
        // SAFETY: guaranteed by the caller.
        let pairs = unsafe { properties(list, CL_INVALID_VALUE) }?;
        let settings = Settings::read(&pairs)?;
        let end = (!list.is_null()).then_some(0);
        let list = pairs.into_iter().flat_map(|(name, value)| [name, value]).chain(end).collect();
        create(&context, settings, Some(list))
    }

    /// Deprecated since OpenCL 2.0.
    fn clCreateSampler(
        context: cl_context,
        normalized: cl_bool,
        addressing: cl_addressing_mode,
        filter: cl_filter_mode,
    ) -> ClResult<cl_sampler> {
        let context = Context::borrow(context)?;
        let settings = Settings { normalized, addressing, filter };
        settings.check()?;
        create(&context, settings, None)
    }
}

cl_entry! {
    fn clRetainSampler(sampler: cl_sampler) -> ClResult<()> {
        Sampler::retain(sampler)
    }

    fn clReleaseSampler(sampler: cl_sampler) -> ClResult<()> {
        Sampler::release(sampler)
    }

    fn clGetSamplerInfo(
        sampler: cl_sampler,
        name: cl_sampler_info,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> ClResult<()> {
        let sampler = Sampler::borrow(sampler)?;
        // SAFETY: guaranteed by the caller.
        let answer = unsafe { Answer::new(size, value, size_ret) };
        match name {
            CL_SAMPLER_REFERENCE_COUNT => answer.value(sampler.references()),
            CL_SAMPLER_CONTEXT => answer.value(sampler.context.raw()),
            CL_SAMPLER_NORMALIZED_COORDS => answer.value(sampler.normalized),
            CL_SAMPLER_ADDRESSING_MODE => answer.value(sampler.addressing),
            CL_SAMPLER_FILTER_MODE => answer.value(sampler.filter),
            CL_SAMPLER_PROPERTIES => answer.values(sampler.list.as_deref().unwrap_or_default()),
            _ => Err(ClError(CL_INVALID_VALUE)),
        }
    }
}

/// Properties of a sampler. "If properties is not specified ... CL_TRUE ... CL_ADDRESS_CLAMP ...
/// CL_FILTER_NEAREST".
struct Settings {
    normalized: cl_bool,
    addressing: cl_addressing_mode,
    filter: cl_filter_mode,
}

impl Settings {
    fn read(pairs: &[(cl_sampler_properties, cl_sampler_properties)]) -> ClResult<Self> {
        let mut settings =
            Self { normalized: CL_TRUE, addressing: CL_ADDRESS_CLAMP, filter: CL_FILTER_NEAREST };
        for (at, (name, value)) in pairs.iter().enumerate() {
            // "CL_INVALID_VALUE if the property name in sampler_properties is not a supported
            // property name, if the value specified for a supported property name is not valid, or
            // if the same property name is specified more than once."
            let again = pairs.iter().take(at).any(|(earlier, _)| earlier == name);
            require(!again, CL_INVALID_VALUE)?;
            let value = u32::try_from(*value).map_err(|_| ClError(CL_INVALID_VALUE))?;
            match u32::try_from(*name) {
                Ok(CL_SAMPLER_NORMALIZED_COORDS) => settings.normalized = value,
                Ok(CL_SAMPLER_ADDRESSING_MODE) => settings.addressing = value,
                Ok(CL_SAMPLER_FILTER_MODE) => settings.filter = value,
                _ => return Err(ClError(CL_INVALID_VALUE)),
            }
        }
        settings.check()?;
        Ok(settings)
    }

    /// "CL_INVALID_VALUE if addressing_mode, filter_mode, normalized_coords or a combination of
    /// these arguments are not valid."
    fn check(&self) -> ClResult {
        let normalized = matches!(self.normalized, CL_TRUE | CL_FALSE);
        let addressing = matches!(
            self.addressing,
            CL_ADDRESS_NONE
                | CL_ADDRESS_CLAMP_TO_EDGE
                | CL_ADDRESS_CLAMP
                | CL_ADDRESS_REPEAT
                | CL_ADDRESS_MIRRORED_REPEAT
        );
        let filter = matches!(self.filter, CL_FILTER_NEAREST | CL_FILTER_LINEAR);
        require(normalized && addressing && filter, CL_INVALID_VALUE)
    }
}

fn create(
    context: &Ref<Context>,
    settings: Settings,
    list: Option<Vec<cl_sampler_properties>>,
) -> ClResult<cl_sampler> {
    // "CL_INVALID_OPERATION if images are not supported by any device associated with context".
    let images = context.devices.iter().any(|device| device.number(CL_DEVICE_IMAGE_SUPPORT) != 0);
    require(images, CL_INVALID_OPERATION)?;
    let Settings { normalized, addressing, filter } = settings;
    let properties = [
        (CL_SAMPLER_NORMALIZED_COORDS, normalized),
        (CL_SAMPLER_ADDRESSING_MODE, addressing),
        (CL_SAMPLER_FILTER_MODE, filter),
    ];
    let properties: Vec<u64> =
        properties.iter().flat_map(|(name, value)| [(*name).into(), (*value).into()]).collect();
    let pool = penstock_client::Sampler::new(&context.pool, &properties)?;
    let sampler = Sampler { pool, context: context.clone(), normalized, addressing, filter, list };
    Ok(Handle::create(&**context, sampler).raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_defaults_and_are_checked() {
        let (address, filter) =
            (u64::from(CL_SAMPLER_ADDRESSING_MODE), u64::from(CL_SAMPLER_FILTER_MODE));
        let settings = Settings::read(&[(address, CL_ADDRESS_REPEAT.into())]).unwrap();
        assert_eq!((settings.normalized, settings.addressing), (CL_TRUE, CL_ADDRESS_REPEAT));
        assert_eq!(settings.filter, CL_FILTER_NEAREST);
        for wrong in [
            vec![(address, 1)],
            vec![(address, u64::MAX)],
            vec![(0x4242, 1)],
            vec![(u64::from(CL_SAMPLER_NORMALIZED_COORDS), 2)],
            vec![(filter, CL_FILTER_LINEAR.into()), (filter, CL_FILTER_LINEAR.into())],
        ] {
            assert_eq!(Settings::read(&wrong).err(), Some(ClError(CL_INVALID_VALUE)), "{wrong:?}");
        }
    }
}
