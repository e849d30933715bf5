//! Remembers how many work-groups of a kernel run at the same time on a GPU.

use penstock_process::Lock;

/// Number of forms of work-groups that one kernel remembers. Programs have one or two.
const FORMS_MAX: usize = 16;

/// The values that determine how many work-groups run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupForm {
    /// Index of the device.
    pub(crate) device: u32,
    /// Number of work-items per group.
    pub(crate) work_items: u32,
    /// Number of bytes of local memory per group.
    pub(crate) local: u64,
}

/// The forms that a worker was asked about, and its answers.
#[derive(Debug, Default)]
pub(crate) struct ResidentGroups(Lock<Vec<(GroupForm, u64)>>);

impl ResidentGroups {
    /// Returns the answer for this form, or `None` if it is not known.
    pub(crate) fn find(&self, form: GroupForm) -> Option<u64> {
        self.0.lock().iter().find(|(known, _)| *known == form).map(|(_, groups)| *groups)
    }

    pub(crate) fn add(&self, form: GroupForm, groups: u64) {
        let mut known = self.0.lock();
        if known.len() == FORMS_MAX {
            known.clear();
        }
        known.push((form, groups));
    }
}
