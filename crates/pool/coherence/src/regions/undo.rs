//! The state to which a segment returns when commands that write it have failed.
//!
//! A failed command may have left any bytes in the copy at its place. There may even be no copy,
//! because the device had no memory for it. The content from before the command is still right, and
//! other places may have it. So a segment keeps its earlier states until the machine hears how its
//! writers have ended.

use rustc_hash::FxHashSet;

use super::{Allocation, Copy, DOUBTED, INITIAL, Need, STALE, Segment, UNDEFINED};
use crate::command::{Access, Use};
use crate::names::{CommandId, NodeId, Place};
use crate::rules::{Rule, Rules};

/// Number of writes over which a segment can return. A program that enqueues more of them before it
/// hears the end of the first loses the old content if all of them fail. The entries take at most
/// 20 KB per segment.
pub(super) const UNDOS_MAX: usize = 256;

/// The state before a write that has not ended, or that has failed behind one that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Undo {
    pub(super) command: CommandId,
    pub(super) place: Place,
    /// The version before the write, and the version that the write makes.
    pub(super) version: u64,
    pub(super) written: u64,
    /// Given for a write over everything that did not ask for the content before it.
    pub(super) replaced: Option<Replaced>,
    pub(super) has_failed: bool,
}

/// The content that a write over everything replaces at its own place.
#[derive(Clone, Debug)]
pub(super) struct Replaced {
    /// Whether the place had the version from before the write.
    pub(super) is_here: bool,
    /// The transfers that were still to bring that version to the place.
    pub(super) arrivals: Vec<CommandId>,
}

impl Allocation {
    /// Returns the transfers and commands that decide whether content that a use needs is undone. A
    /// command decides only about content that no place has.
    pub(crate) fn before_undone(
        &self,
        it: &Use,
        place: Place,
        is_live: &dyn Fn(CommandId) -> bool,
        (rules, lost): (Rules, &FxHashSet<NodeId>),
    ) -> Vec<CommandId> {
        let is_lost = |segment: &Segment| self.need(segment, place, rules, lost) == Need::Lost;
        let deciding = self.needed(it, rules).flat_map(|segment| {
            // If this one fails, the caller asks again, and may have to wait for an older one.
            let newest = segment.unheard().rev().find(|id| is_live(*id));
            segment.undecided().chain(newest.filter(|_| is_lost(segment)))
        });
        deciding.filter(|id| is_live(*id)).collect()
    }
}

impl Segment {
    /// Notes the state to which the segment returns if a command that writes it fails. The segment
    /// already has its new version.
    pub(super) fn note_undo(
        &mut self,
        undo: Undo,
        access: Access,
        rules: Rules,
        is_alive: &dyn Fn(Place) -> bool,
    ) {
        let rule = match access {
            Access::Overwrite => Rule::FailedOverwriteIsUndone,
            Access::Read | Access::Write => Rule::FailedWriteIsUndone,
        };
        if !rules.hold(rule) {
            self.undos.clear();
            return;
        }
        // The common case: only the writer's place has the content from before.
        if self.undos.is_empty() && !self.can_go_back(&undo, is_alive) {
            return;
        }
        self.undos.push(undo);
        self.forget_undos(is_alive);
        if self.undos.len() > UNDOS_MAX {
            self.undos.clear();
        }
    }

    /// Notes how a writer of the segment has ended.
    pub(super) fn end_undo(&mut self, command: CommandId, is_ok: bool) {
        let Some(at) = self.undos.iter().position(|undo| undo.command == command) else { return };
        if is_ok {
            self.undos.drain(..=at);
        } else if let Some(undo) = self.undos.get_mut(at) {
            undo.has_failed = true;
        }
    }

    /// Returns to the oldest content that a place still has, if all writers since then have failed.
    /// Must be called whenever something has ended.
    pub(super) fn settle_undos(&mut self, is_alive: &dyn Fn(Place) -> bool) {
        if self.undos.is_empty() {
            return;
        }
        let mut failed = self.undos.iter().enumerate().skip(self.first_failed());
        // A copy whose content may still not arrive is no better than that of the failed command.
        let can_hold = |place| {
            is_alive(place) && self.copies.get(place).is_some_and(|it| it.arrivals.is_empty())
        };
        let oldest = failed.find(|(_, undo)| self.can_go_back(undo, &can_hold)).map(|(at, _)| at);
        if let Some(at) = oldest {
            let mut undone: Vec<Undo> = self.undos.drain(at..).collect();
            for undo in undone.iter().skip(1).filter(|undo| undo.replaced.is_some()) {
                // A transfer that the write has replaced may store anything there, or has done so.
                if let Some(copy) = self.copies.get_mut(undo.place) {
                    copy.version = STALE;
                }
            }
            self.go_back(undone.swap_remove(0));
        }
        self.forget_undos(is_alive);
    }

    /// Returns the index from which on all writers have failed.
    fn first_failed(&self) -> usize {
        self.undos.iter().rposition(|undo| !undo.has_failed).map_or(0, |at| at + 1)
    }

    /// Returns the transfers on their way to copies with content from before failed writers. When
    /// they have ended, it is known whether the segment returns to that content.
    fn undecided(&self) -> impl Iterator<Item = CommandId> {
        let failed = self.undos.get(self.first_failed()..).unwrap_or_default();
        let old = failed
            .iter()
            .flat_map(|undo| self.copies.iter().filter(|copy| copy.version == undo.version));
        old.flat_map(|copy| copy.arrivals.iter().copied())
    }

    /// Returns the writers whose ends the machine has not heard. If the content did not reach one
    /// of them, that writer fails, and the segment may return to content that another place has.
    fn unheard(&self) -> impl DoubleEndedIterator<Item = CommandId> {
        self.undos.iter().filter(|undo| !undo.has_failed).map(|undo| undo.command)
    }

    /// Notes that a command has failed at `place`, perhaps because its content has not arrived: a
    /// device without memory has none. The machine is not told whether content given at creation
    /// has arrived. It may hear the end of a transfer later.
    pub(super) fn doubt(&mut self, place: Place, is_alive: &dyn Fn(Place) -> bool) {
        let Self { version, copies, .. } = self;
        if *version == UNDEFINED {
            return;
        }
        let is_firm = |(other, copy): (Place, &Copy)| {
            other != place
                && is_alive(other)
                && copy.version == *version
                && copy.arrivals.is_empty()
        };
        let is_elsewhere = *version == INITIAL || copies.iter().enumerate().any(is_firm);
        let Some(copy) = copies.get_mut(place) else { return };
        let may_not_arrive = copy.version == *version && !copy.arrivals.is_empty() && is_elsewhere;
        if copy.version == INITIAL || may_not_arrive {
            copy.version = DOUBTED;
        }
    }

    fn go_back(&mut self, undo: Undo) {
        let is_last = self.version == undo.written;
        self.version = undo.version;
        if undo.version == UNDEFINED {
            // The content that the failed commands have left is as good as any. No bytes need to
            // move because of it.
            let is_any = |copy: &&mut Copy| copy.version != STALE;
            self.copies.iter_mut().filter(is_any).for_each(|copy| copy.version = UNDEFINED);
        }
        // At the place of any other write, the copy has a version that is not asked for any more.
        if let Some(replaced) = undo.replaced.filter(|_| is_last)
            && let Some(copy) = self.copies.get_mut(undo.place)
        {
            copy.version = if replaced.is_here { undo.version } else { STALE };
            copy.arrivals = replaced.arrivals;
        }
    }

    /// Notes the end of a transfer that was on its way when a write over everything replaced its
    /// target.
    pub(super) fn end_replaced(&mut self, transfer: CommandId, is_ok: bool) {
        for replaced in self.undos.iter_mut().filter_map(|undo| undo.replaced.as_mut()) {
            let before = replaced.arrivals.len();
            replaced.arrivals.retain(|id| *id != transfer);
            replaced.is_here &= is_ok || replaced.arrivals.len() == before;
        }
    }

    /// Forgets the oldest entries as long as no place has their content any more. So a program that
    /// moves a buffer to and fro has one entry for each other place.
    fn forget_undos(&mut self, is_alive: &dyn Fn(Place) -> bool) {
        let keep = self.undos.iter().position(|undo| self.can_go_back(undo, is_alive));
        self.undos.drain(..keep.unwrap_or(self.undos.len()));
    }

    fn can_go_back(&self, undo: &Undo, is_alive: &dyn Fn(Place) -> bool) -> bool {
        let is_last = self.version == undo.written;
        let mut copies = self.copies.iter().enumerate();
        (undo.replaced.is_some() && is_last)
            || undo.version == INITIAL
            || copies.any(|(place, copy)| copy.version == undo.version && is_alive(place))
    }
}
