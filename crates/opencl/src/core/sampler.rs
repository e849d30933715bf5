//! Samplers.

use std::sync::Arc;

use penstock_cl_sys::{
    _cl_sampler, CL_INVALID_SAMPLER, cl_addressing_mode, cl_bool, cl_filter_mode, cl_int,
    cl_sampler_properties,
};

use super::context::Context;
use crate::edge::{Object, Ref};

/// Behind a `cl_sampler`.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// The pool's view of it.
    pub(crate) pool: Arc<penstock_client::Sampler>,
    pub(crate) context: Ref<Context>,
    pub(crate) normalized: cl_bool,
    pub(crate) addressing: cl_addressing_mode,
    pub(crate) filter: cl_filter_mode,
    /// As the program gave them, with the final 0; none if it made the sampler without a list.
    pub(crate) list: Option<Vec<cl_sampler_properties>>,
}

impl Object for Sampler {
    type Raw = _cl_sampler;
    const INVALID: cl_int = CL_INVALID_SAMPLER;
}
