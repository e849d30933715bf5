//! A batch that is being planned, and the plans of its groups.

use super::collect::{Group, Spread};
use super::cost::{Choice, Tree};
use crate::command::{CommandId, End, Rank, Sink, Stream};
use crate::request::IssuedCommand;

#[derive(Debug)]
pub(super) struct GroupPlan {
    pub(super) group: Group,
    pub(super) choice: Choice,
    /// Number of bytes that each member gets.
    pub(super) size: u64,
    /// The rank that has the bytes and is no member. It is 0 if it only becomes known when the
    /// group is planned.
    pub(super) source: Rank,
    pub(super) decision: usize,
    /// The ranks of the members, in ascending order.
    pub(super) ranks: Vec<Rank>,
    pub(super) trees: Vec<PlannedTree>,
}

/// A tree of a broadcast with its jobs.
#[derive(Debug)]
pub(super) struct PlannedTree {
    pub(super) tree: Tree,
    /// The receiving job of each rank.
    pub(super) jobs: Vec<CommandId>,
    /// The sender for each index: 0 is the source, 1 the first rank.
    pub(super) parents: Vec<usize>,
}

impl GroupPlan {
    pub(super) fn new(
        group: Group,
        source: Rank,
        choice: Choice,
        decision: usize,
        size: u64,
    ) -> Self {
        Self { group, choice, size, source, decision, ranks: Vec::new(), trees: Vec::new() }
    }

    /// Returns where the participant `index` (0 is the source) sends the bytes of a tree. `first`
    /// is the offset of the tree's range in the participant's bytes.
    pub(super) fn sinks(&self, strand: &PlannedTree, index: usize, first: u64) -> Vec<Sink> {
        let children = strand.tree.children.get(index).map(Vec::as_slice).unwrap_or_default();
        let ends = children.iter().filter_map(|child| {
            let stream = Stream::of(strand.jobs.get(child - 1)?.0);
            Some(End::Rank { rank: *self.ranks.get(child - 1)?, stream })
        });
        ends.map(|to| Sink { to, first, size: strand.tree.size }).collect()
    }

    /// Returns the receivers to which the source sends. `first` is the offset of the group's bytes
    /// in the source's bytes.
    pub(super) fn source_sinks(&self, first: u64) -> Vec<Sink> {
        self.trees
            .iter()
            .flat_map(|strand| self.sinks(strand, 0, first + strand.tree.first))
            .collect()
    }
}

/// A batch that is being planned.
#[derive(Debug)]
pub(super) struct Planning {
    /// The commands; `None` stands for one that was planned.
    pub(super) batch: Vec<Option<IssuedCommand>>,
    /// Indices into the batch, by level: a command is planned after those that it waits for.
    pub(super) order: Vec<usize>,
    /// Number of entries of `order` that are done.
    pub(super) next: usize,
    pub(super) plans: Vec<GroupPlan>,
    /// Index of each command's plan, if it has one.
    pub(super) plan_of: Vec<Option<usize>>,
    /// Indices of the plans that each read feeds.
    pub(super) fed: Vec<Vec<usize>>,
    pub(super) spreads: Vec<Spread>,
    /// Index of each command's spread, if the paper's way replaces that.
    pub(super) spread_of: Vec<Option<usize>>,
}

impl Planning {
    /// Plans the commands one by one, without groups.
    pub(super) fn one_by_one(batch: Vec<IssuedCommand>) -> Self {
        let count = batch.len();
        Self {
            batch: batch.into_iter().map(Some).collect(),
            order: (0..count).collect(),
            next: 0,
            plans: Vec::new(),
            plan_of: Vec::new(),
            fed: Vec::new(),
            spreads: Vec::new(),
            spread_of: Vec::new(),
        }
    }

    /// Returns the number of commands not planned yet.
    pub(super) fn left(&self) -> usize {
        self.order.len().saturating_sub(self.next)
    }

    pub(super) fn take(&mut self, members: &[usize]) -> Vec<IssuedCommand> {
        members.iter().filter_map(|member| self.batch.get_mut(*member)?.take()).collect()
    }
}

pub(super) fn at<T: Copy>(list: &[Option<T>], place: usize) -> Option<T> {
    list.get(place).copied().flatten()
}
