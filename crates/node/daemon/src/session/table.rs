//! Objects by the ids that the client chose.

use std::sync::Arc;

use penstock_quota::Resource;
use penstock_wire::{FrameError, Id, Status, limits};
use rustc_hash::FxHashMap;

use super::allowance::{Allowance, Refused};

/// Objects of one kind. Creation is one-way: a failed one stays as its status, which every use
/// reports.
pub(crate) struct Table<K, T> {
    objects: FxHashMap<Id<K>, Result<T, Status>>,
    /// Status for an unknown id.
    missing: Status,
    name: &'static str,
    /// Where the objects come from, if they count.
    allowance: Option<Arc<Allowance>>,
}

impl<K, T> Table<K, T> {
    pub(crate) fn new(name: &'static str, missing: Status) -> Self {
        Self { objects: FxHashMap::default(), missing, name, allowance: None }
    }

    /// Has each object counted.
    pub(crate) fn counted(self, allowance: &Arc<Allowance>) -> Self {
        Self { allowance: Some(allowance.clone()), ..self }
    }

    /// Adds an object, or the reason why it could not be made.
    pub(crate) fn insert(
        &mut self,
        id: Id<K>,
        object: Result<T, Status>,
    ) -> Result<(), FrameError> {
        self.create(id, |_| object)
    }

    /// Makes an object and adds it, or the reason why it could not be made. Makes nothing if the id
    /// cannot be used. `make` gets the table as it was before.
    pub(crate) fn create(
        &mut self,
        id: Id<K>,
        make: impl FnOnce(&Self) -> Result<T, Status>,
    ) -> Result<(), FrameError> {
        self.vacant(id)?;
        if let Some(allowance) = &self.allowance {
            let taken = allowance.take(Resource::Objects, 1);
            taken.map_err(|Refused(why)| FrameError::Quota(why))?;
        }
        let object = make(self);
        self.objects.insert(id, object);
        Ok(())
    }

    /// Checks that an object can be added under this id, before it is made.
    pub(crate) fn vacant(&self, id: Id<K>) -> Result<(), FrameError> {
        if id.is_none() || self.objects.contains_key(&id) {
            return Err(FrameError::BadId(self.name));
        }
        if self.objects.len() >= limits::OBJECTS_PER_SESSION_MAX {
            return Err(FrameError::Limit("OBJECTS_PER_SESSION_MAX"));
        }
        Ok(())
    }

    pub(crate) fn get(&self, id: Id<K>) -> Result<&T, Status> {
        self.objects.get(&id).ok_or(self.missing)?.as_ref().map_err(|status| *status)
    }

    pub(crate) fn get_mut(&mut self, id: Id<K>) -> Result<&mut T, Status> {
        self.objects.get_mut(&id).ok_or(self.missing)?.as_mut().map_err(|status| *status)
    }

    /// Removes an object. An unknown id is no error.
    pub(crate) fn remove(&mut self, id: Id<K>) -> Option<T> {
        let removed = self.objects.remove(&id)?;
        if let Some(allowance) = &self.allowance {
            allowance.give(Resource::Objects, 1);
        }
        removed.ok()
    }

    /// Returns all objects that could be made.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.objects.values_mut().filter_map(|object| object.as_mut().ok())
    }
}

#[cfg(test)]
mod tests {
    use penstock_wire::id::kind;

    use super::*;

    fn table() -> Table<kind::Mem, u32> {
        Table::new("a memory object", Status::INVALID_MEM_OBJECT)
    }

    #[test]
    fn a_failed_object_reports_why() {
        let mut table = table();
        table.insert(Id::new(1), Err(Status::MEM_OBJECT_ALLOCATION_FAILURE)).unwrap();
        assert_eq!(table.get(Id::new(1)), Err(Status::MEM_OBJECT_ALLOCATION_FAILURE));
        assert_eq!(table.get(Id::new(2)), Err(Status::INVALID_MEM_OBJECT));
    }

    #[test]
    fn ids_are_used_once_at_a_time() {
        let mut table = table();
        table.insert(Id::new(1), Ok(7)).unwrap();
        assert_eq!(table.insert(Id::new(1), Ok(8)), Err(FrameError::BadId("a memory object")));
        assert_eq!(table.insert(Id::NONE, Ok(8)), Err(FrameError::BadId("a memory object")));
        assert_eq!(table.remove(Id::new(1)), Some(7));
        assert_eq!(table.remove(Id::new(1)), None);
    }
}
