//! Turns groups of transfers of the same bytes into jobs. Each rank has one job per tree, which
//! receives the bytes for all members there and passes them on.

use super::collect::Source;
use super::cost::{self, SEGMENT_BYTES};
use super::planning::{GroupPlan, PlannedTree};
use super::{HostRange, Root};
use crate::command::{Command, CommandId, End, Job, Move, Rank, Sink, Stream, Wait};
use crate::request::IssuedCommand;

impl Root {
    /// Lays out the trees of a plan.
    pub(super) fn lay_out(&mut self, plan: &mut GroupPlan, batch: &[IssuedCommand]) {
        let mut firsts: Vec<(Rank, CommandId)> = plan
            .group
            .members
            .iter()
            .filter_map(|place| batch.get(*place))
            .map(|issue| (issue.rank, issue.id))
            // Bytes that went through a lost rank would not reach the ranks behind it.
            .filter(|(rank, _)| *rank != plan.source && !self.is_lost(*rank))
            .collect();
        firsts.sort_unstable();
        firsts.dedup_by_key(|(rank, _)| *rank);
        let members = u32::try_from(firsts.len()).unwrap_or(u32::MAX);
        let mut trees = cost::trees(plan.choice.shape, members, plan.size, plan.choice.segment);
        let last = trees.pop();
        for tree in trees {
            let jobs = firsts.iter().map(|_| self.command()).collect();
            plan.trees.push(PlannedTree { parents: parents(&tree.children), jobs, tree });
        }
        // The job of the last tree is the command itself, which waits for the jobs of the other
        // trees.
        if let Some(tree) = last {
            let jobs = firsts.iter().map(|(_, id)| *id).collect();
            plan.trees.push(PlannedTree { parents: parents(&tree.children), jobs, tree });
        }
        plan.ranks = firsts.into_iter().map(|(rank, _)| rank).collect();
    }

    /// Plans the members of a group: one job for each rank and tree, and one for the source.
    pub(super) fn plan_group(&mut self, plan: &GroupPlan, members: Vec<IssuedCommand>) {
        let ids: Vec<CommandId> = members.iter().map(|member| member.id).collect();
        self.explain.watch(plan.decision, &ids);
        let (there, others): (Vec<IssuedCommand>, Vec<IssuedCommand>) =
            members.into_iter().partition(|member| plan.ranks.binary_search(&member.rank).is_ok());
        // These members are on the source itself or on lost ranks.
        others.into_iter().for_each(|member| self.plan(member));
        let Some(first) = there.first() else { return };
        let (source, first) = (
            match plan.group.source {
                Source::Read(_) => {
                    ids.iter().find_map(|id| self.feeders.get(id).copied()).unwrap_or_default()
                }
                _ => plan.source,
            },
            (first.source, first.command.clone()),
        );
        let common = common_waits(&there);
        let others: Vec<CommandId> =
            there.iter().flat_map(|member| member.waits.iter().copied()).collect();
        for (index, members) in (1..).zip(by_rank(there)) {
            self.plan_member(plan, index, members, source, &common);
        }
        let (device_of_source, command) = first;
        let (end, device, waits) = match (plan.group.source, command) {
            (Source::Memory, Command::Write { address, size, .. }) => {
                let hazards = self.reads_into(address, size);
                (End::Host { address }, 0, self.waits(0, &hazards))
            }
            (Source::Buffer(rank), Command::Copy { from, from_offset, .. }) => {
                let waits = self.source_waits(rank, &common, others);
                (End::Buffer { buffer: from, offset: from_offset }, device_of_source.index, waits)
            }
            _ => return,
        };
        let id = self.command();
        let (sinks, size, segment) = (plan.source_sinks(0), plan.size, plan.choice.segment);
        let command = Command::Move(Move { source: end, sinks, size, segment, early: false });
        self.send(source, Job { id, device, waits, command, collective: None });
    }

    /// Returns the waits of the source of a group of copies. The source waits for all commands that
    /// any copy waits for, since each of them may write the bytes. A command that only some copies
    /// wait for may fail without failing the others.
    fn source_waits(
        &mut self,
        rank: Rank,
        common: &[CommandId],
        mut others: Vec<CommandId>,
    ) -> Vec<Wait> {
        others.sort_unstable();
        others.dedup();
        // A creation on another rank that waits for nothing cannot write the bytes.
        others.retain(|wait| !common.contains(wait) && !self.is_creation_elsewhere(*wait, rank));
        let mut waits = self.waits(rank, common);
        let lenient = self.waits(rank, &others);
        waits.extend(lenient.into_iter().map(|wait| Wait { is_lenient: true, ..wait }));
        waits
    }

    /// Plans the members of one rank: a job for each tree, which receives for all of them and
    /// passes the bytes on.
    fn plan_member(
        &mut self,
        plan: &GroupPlan,
        index: usize,
        members: Vec<IssuedCommand>,
        source: Rank,
        common: &[CommandId],
    ) {
        let Some((id, rank, device)) =
            members.first().map(|first| (first.id, first.rank, first.device))
        else {
            return;
        };
        let is_copy = matches!(plan.group.source, Source::Buffer(_));
        let mut waits = Vec::new();
        let mut targets = Vec::new();
        for member in &members {
            match member.command {
                Command::Write { buffer, offset, .. } => targets.push((buffer, offset)),
                Command::Copy { to, to_offset, .. } => targets.push((to, to_offset)),
                _ => {}
            }
            waits.extend_from_slice(&member.waits);
            if member.id != id {
                self.same_as(member.id, id);
            }
        }
        waits.sort_unstable();
        waits.dedup();
        // The bytes come after the read or the source of the copies, so the receiver need not wait
        // for the same again.
        waits.retain(|wait| {
            !(self.fed_by.contains(&(*wait, id)) || is_copy && common.contains(wait))
        });
        let mut waits = self.waits(rank, &waits);
        for strand in &plan.trees {
            let (Some(job), Some(parent)) = (strand.jobs.get(index - 1), strand.parents.get(index))
            else {
                continue;
            };
            let from = if *parent == 0 {
                source
            } else {
                plan.ranks.get(*parent - 1).copied().unwrap_or_default()
            };
            let mut sinks: Vec<Sink> = targets
                .iter()
                .map(|(buffer, offset)| Sink {
                    to: End::Buffer { buffer: *buffer, offset: offset + strand.tree.first },
                    first: 0,
                    size: strand.tree.size,
                })
                .collect();
            let forwards = plan.sinks(strand, index, 0);
            // A wait here may depend on the end of the sender, or of a rank that gets these bytes
            // from here.
            let early = is_copy || from != 0 || !forwards.is_empty() || plan.trees.len() > 1;
            sinks.extend(forwards);
            let source = End::Rank { rank: from, stream: Stream::of(job.0) };
            let (size, segment) = (strand.tree.size, plan.choice.segment);
            let command = Command::Move(Move { source, sinks, size, segment, early });
            self.send(
                rank,
                Job { id: *job, device, waits: waits.clone(), command, collective: None },
            );
            waits = vec![Wait { command: *job, rank, is_lenient: false }];
        }
    }

    /// Plans a read whose bytes also go straight to other ranks.
    pub(super) fn plan_feeding_read(
        &mut self,
        issue: IssuedCommand,
        feeds: &[&GroupPlan],
        batch: &[Option<IssuedCommand>],
    ) {
        let IssuedCommand { id, rank, device, waits, command, .. } = issue;
        let Command::Read { buffer, offset, size, address } = command else { return };
        self.reads.push(HostRange {
            start: address,
            end: address.saturating_add(size),
            command: id,
        });
        let segment = feeds.first().map_or(SEGMENT_BYTES, |plan| plan.choice.segment);
        let to = match rank {
            0 => End::Host { address },
            _ => End::Rank { rank: 0, stream: Stream::of(id.0) },
        };
        let mut sinks = vec![Sink { to, first: 0, size }];
        for plan in feeds {
            let members = plan.group.members.iter().filter_map(|place| batch.get(*place)?.as_ref());
            let mut first = 0;
            for member in members.filter(|member| member.rank != 0) {
                self.feeders.insert(member.id, rank);
                self.fed_by.insert((id, member.id));
                if let Command::Write { address: start, .. } = member.command {
                    first = start.saturating_sub(address);
                }
            }
            sinks.extend(plan.source_sinks(first));
        }
        let part = self.command();
        let source = End::Buffer { buffer, offset };
        let waits = self.waits(rank, &waits);
        let job = if rank == 0 { id } else { part };
        let command = Command::Move(Move { source, sinks, size, segment, early: false });
        self.send(rank, Job { id: job, device, waits, command, collective: None });
        if rank == 0 {
            return;
        }
        let sinks = vec![Sink { to: End::Host { address }, first: 0, size }];
        let source = End::Rank { rank, stream: Stream::of(id.0) };
        let command = Command::Move(Move { source, sinks, size, segment, early: false });
        self.send(0, Job { id, device: 0, waits: Vec::new(), command, collective: None });
        if let Some(track) = self.tracks.get_mut(&id) {
            track.rank = 0;
            track.inner = Some((rank, part));
        }
    }
}

/// Returns the commands that all of these wait for.
fn common_waits(members: &[IssuedCommand]) -> Vec<CommandId> {
    let Some((first, others)) = members.split_first() else { return Vec::new() };
    let all =
        |wait: &CommandId| others.iter().all(|member| member.waits.binary_search(wait).is_ok());
    first.waits.iter().copied().filter(all).collect()
}

/// Returns the members of each rank, in ascending order of ranks.
fn by_rank(mut members: Vec<IssuedCommand>) -> Vec<Vec<IssuedCommand>> {
    members.sort_by_key(|member| (member.rank, member.id));
    let mut ranks: Vec<Vec<IssuedCommand>> = Vec::new();
    for member in members {
        match ranks.last_mut() {
            Some(last) if last.first().is_some_and(|first| first.rank == member.rank) => {
                last.push(member)
            }
            _ => ranks.push(vec![member]),
        }
    }
    ranks
}

/// Inverts lists of children into the parent of each index.
fn parents(lists: &[Vec<usize>]) -> Vec<usize> {
    let mut parents = vec![0; lists.len()];
    for (parent, list) in lists.iter().enumerate() {
        for child in list {
            if let Some(place) = parents.get_mut(*child) {
                *place = parent;
            }
        }
    }
    parents
}
