//! What a builder must know to perform a build of this session.

use penstock_wire::describe::BuildOrder;
use penstock_wire::{Id, Status};

use super::Objects;
use super::program::Program;
use crate::builder::{Goal, Making, Origin, Rehearsal};

impl Objects {
    /// Returns the rehearsal of a build or compilation, or `None` if it is not rehearsed: programs
    /// from binaries and built-in kernels need no compiler. `includes` says whether files of the
    /// client come with the build.
    pub(super) fn rehearse_build(
        &self,
        program: &Program,
        order: &BuildOrder,
        compile: bool,
        includes: bool,
    ) -> Option<Rehearsal> {
        let rehearsals = self.rehearsals.as_ref()?;
        let making = self.making(program, order);
        // Such files are gone when the program is linked, so that it cannot be compiled again.
        program.note_compiled(making.clone().filter(|_| compile && !includes));
        let goal = if compile { Goal::Compile(making?) } else { Goal::Build(making?) };
        rehearsals.of(goal, order.devices.clone(), self.wholes(order)?)
    }

    /// Returns the rehearsal of a link. A link with an input that was linked itself, or that was
    /// made from a binary, is not rehearsed.
    pub(super) fn rehearse_link(&self, order: &BuildOrder) -> Option<Rehearsal> {
        let rehearsals = self.rehearsals.as_ref()?;
        let inputs = order.programs.iter().map(|(_, id)| {
            let input = self.programs.get(Id::new(*id)).ok()?;
            Some(Making::clone(&*input.compiled()?))
        });
        let goal =
            Goal::Link { options: order.options.clone(), inputs: inputs.collect::<Option<_>>()? };
        rehearsals.of(goal, order.devices.clone(), self.wholes(order)?)
    }

    /// Returns the index of the device, or of the whole device of which it is a part.
    pub(super) fn whole(&self, index: u32) -> Result<u32, Status> {
        let index = usize::try_from(index).map_err(|_| Status::INVALID_DEVICE)?;
        self.wholes.get(index).copied().ok_or(Status::INVALID_DEVICE)
    }

    fn wholes(&self, order: &BuildOrder) -> Option<Vec<u32>> {
        order.devices.iter().map(|index| self.whole(*index).ok()).collect()
    }

    fn making(&self, program: &Program, order: &BuildOrder) -> Option<Making> {
        let headers = order.programs.iter().map(|(name, id)| {
            let header = self.programs.get(Id::new(*id)).ok()?.origin()?;
            match &*header {
                Origin::Source(source) => Some((name.clone(), source.clone())),
                Origin::Il { .. } => None,
            }
        });
        Some(Making {
            headers: headers.collect::<Option<_>>()?,
            origin: Origin::clone(&*program.origin()?),
            options: order.options.clone(),
        })
    }
}
