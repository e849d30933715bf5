//! User objects. When neither the program nor a graph refers to an object any more, a function of
//! the program destroys it.

use std::sync::Arc;

use penstock_cuda_sys::driver::*;
use penstock_process::Lock;

use crate::edge::{CuResult, HostCall, forget, has_handle, new_number, publish, require};

pub(crate) struct UserObject {
    number: u64,
    /// References that the program holds.
    own: Lock<u32>,
    destructor: Arc<Destructor>,
}

/// Calls the function when the last owner drops it. All references of the program count as one
/// owner.
#[derive(Debug)]
struct Destructor(HostCall);

impl Drop for Destructor {
    fn drop(&mut self) {
        self.0.call();
    }
}

has_handle!(UserObject: CUuserObject_st, CUDA_ERROR_INVALID_VALUE);

impl UserObject {
    pub(crate) fn create(destructor: HostCall, count: u32) -> CuResult<Arc<Self>> {
        require(count > 0 && i32::try_from(count).is_ok(), CUDA_ERROR_INVALID_VALUE)?;
        let object = Arc::new(Self {
            number: new_number(),
            own: Lock::new(count),
            destructor: Arc::new(Destructor(destructor)),
        });
        publish(&object);
        Ok(object)
    }

    pub(crate) fn retain(&self, count: u32) -> CuResult {
        require(count > 0 && i32::try_from(count).is_ok(), CUDA_ERROR_INVALID_VALUE)?;
        let mut own = self.own.lock();
        *own = own.checked_add(count).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        Ok(())
    }

    pub(crate) fn release(&self, count: u32) -> CuResult {
        require(count > 0, CUDA_ERROR_INVALID_VALUE)?;
        let mut own = self.own.lock();
        *own = own.checked_sub(count).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if *own == 0 {
            forget(self).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        }
        Ok(())
    }
}

/// User objects of a graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct UserObjects(Vec<Reference>);

/// The references of a graph to one user object.
#[derive(Clone, Debug)]
struct Reference {
    /// Number of the user object.
    object: u64,
    /// Number of references.
    count: u32,
    _destructor: Arc<Destructor>,
}

impl UserObjects {
    pub(crate) fn add(&mut self, object: &UserObject, count: u32) -> CuResult {
        require(count > 0 && i32::try_from(count).is_ok(), CUDA_ERROR_INVALID_VALUE)?;
        match self.0.iter_mut().find(|known| known.object == object.number) {
            Some(known) => {
                known.count = known.count.checked_add(count).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            }
            None => self.0.push(Reference {
                object: object.number,
                count,
                _destructor: object.destructor.clone(),
            }),
        }
        Ok(())
    }

    /// Implements `cuGraphReleaseUserObject`. Returns the last reference of the graph. The caller
    /// must drop it without the graph's lock, because the drop may call a function of the program.
    pub(crate) fn remove(
        &mut self,
        number: u64,
        count: u32,
    ) -> CuResult<Option<impl Sized + use<>>> {
        let index = self
            .0
            .iter()
            .position(|known| known.object == number)
            .ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let known = self.0.get_mut(index).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let left = known.count.checked_sub(count).filter(|_| count > 0);
        known.count = left.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        Ok(if known.count == 0 { Some(self.0.swap_remove(index)) } else { None })
    }
}
