//! Samplers.

use std::sync::Arc;

use penstock_cl_sys::{
    _cl_sampler, CL_INVALID_SAMPLER, cl_addressing_mode, cl_bool, cl_filter_mode, cl_int,
    cl_sampler_properties,
};

use super::context::Context;
use crate::edge::{Object, Ref};

/// Object behind a `cl_sampler`.
#[derive(Debug)]
pub(crate) struct Sampler {
    pub(crate) pool: Arc<penstock_client::Sampler>,
    pub(crate) context: Ref<Context>,
    pub(crate) normalized: cl_bool,
    pub(crate) addressing: cl_addressing_mode,
    pub(crate) filter: cl_filter_mode,
    /// The program's list with its final 0; `None` if it created the sampler without a list.
    pub(crate) list: Option<Vec<cl_sampler_properties>>,
}

impl Object for Sampler {
    type Raw = _cl_sampler;
    const INVALID: cl_int = CL_INVALID_SAMPLER;
}
