//! A heap's use of UCX, if it is wanted.

use std::sync::Arc;

use super::engine::Engine;
use super::error::UcxError;
use super::library::UcxContext;

/// A heap's use of UCX. The first member that needs the engine makes it.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    is_made: bool,
    engine: Option<Arc<Engine>>,
}

impl Offer {
    pub(crate) fn make(&mut self) {
        self.is_made = true;
    }

    pub(crate) fn is_made(&self) -> bool {
        self.is_made
    }

    pub(crate) fn engine(&mut self) -> Result<Arc<Engine>, UcxError> {
        if let Some(engine) = &self.engine {
            return Ok(engine.clone());
        }
        let engine = Arc::new(Engine::new(&UcxContext::get()?)?);
        self.engine = Some(engine.clone());
        Ok(engine)
    }

    /// Gives up the engine. The carriers that hold it keep it.
    pub(crate) fn take(&mut self) {
        *self = Self::default();
    }
}
