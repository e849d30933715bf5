//! Dynamic collective replacement: transfers that the program asked for one by one are done together where that is faster.
//!
//! A broadcast becomes a tree: the source sends to some ranks, which send on what they get, piece by piece, and each member has
//! ended when its own bytes are there. Several devices of one rank share one copy on the link. Bytes that come from another device (a read
//! and writes of what it reads) go from rank to rank and do not wait for the root.
//!
//! Scatter and gather are found too and explained, but done as they are: all their bytes pass the root's link once either way,
//! and what a collective saves elsewhere, messages for each command, the batch has saved already.

use super::collect::{self, Found, Group};
use super::cost::{Choice, Link, Shape, children};
use super::{Issue, Request, Root};
use rustc_hash::FxHashMap;

use crate::command::{CommandId, End, Job, Move, Rank, Sink, Stream, Together, Work};

/// What `WTR_DCR` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nothing is replaced.
    Off,
    /// As the paper does it: whatever looks like a collective over all ranks is replaced, and blocks its ranks until it is done.
    Paper,
    /// Where the cost model predicts a gain.
    #[default]
    Auto,
}

impl Mode {
    /// The mode of this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "off" => Some(Self::Off),
            "paper" => Some(Self::Paper),
            "auto" => Some(Self::Auto),
            _ => None,
        }
    }
}

/// A group that is replaced.
struct Plan {
    group: Group,
    choice: Choice,
    decision: usize,
}

impl Root {
    /// Plans a batch with replacement. Commands are taken level by level: what one waits for is planned before it.
    pub(super) fn plan_together(&mut self, batch: Vec<Issue>) {
        let mut found = collect::find(&batch);
        let levels = collect::levels(&batch);
        let mut order: Vec<usize> = (0..batch.len()).collect();
        order.sort_by_key(|place| levels.get(*place).copied());
        let mut plans: Vec<Plan> = Vec::new();
        let mut plan_of: Vec<Option<usize>> = vec![None; batch.len()];
        let mut fed: Vec<Vec<usize>> = vec![Vec::new(); batch.len()];
        self.explain_spreads(&batch, &levels, &found);
        let mut spread_of: Vec<Option<usize>> = vec![None; batch.len()];
        for group in std::mem::take(&mut found.groups) {
            let Some(plan) = self.decide(&batch, &levels, group) else { continue };
            for member in &plan.group.members {
                if let Some(place) = plan_of.get_mut(*member) {
                    *place = Some(plans.len());
                }
            }
            if let Some(feeds) = plan.group.feed.and_then(|read| fed.get_mut(read)) {
                feeds.push(plans.len());
            }
            plans.push(plan);
        }
        for (index, spread) in found.spreads.iter().enumerate() {
            // The paper's: over all ranks, and one range after the other.
            let is_whole = spread.is_contiguous
                && collect::ranks(&batch, &spread.members) as u64 + 1 >= self.ranks().into();
            for member in spread.members.iter().filter(|_| is_whole) {
                if let Some(place) = spread_of.get_mut(*member) {
                    *place = Some(index);
                }
            }
        }
        let mut batch: Vec<Option<Issue>> = batch.into_iter().map(Some).collect();
        for place in order {
            match plan_of.get(place).copied().flatten().and_then(|plan| plans.get(plan)) {
                Some(plan) => {
                    let members = plan.group.members.iter();
                    let members: Vec<Issue> =
                        members.filter_map(|member| batch.get_mut(*member)?.take()).collect();
                    if !members.is_empty() {
                        self.blocking(|root| root.plan_group(plan, members));
                    }
                }
                None if self.mode == Mode::Paper && spread_of.get(place).copied().flatten().is_some() => {
                    let spread = spread_of.get(place).copied().flatten().unwrap_or_default();
                    let members =
                        found.spreads.get(spread).map(|spread| spread.members.as_slice()).unwrap_or_default();
                    let members: Vec<Issue> =
                        members.iter().filter_map(|member| batch.get_mut(*member)?.take()).collect();
                    if !members.is_empty() {
                        self.blocking(|root| members.into_iter().for_each(|member| root.plan(member)));
                    }
                }
                None => {
                    let Some(issue) = batch.get_mut(place).and_then(Option::take) else { continue };
                    let feeds = fed.get(place).map(Vec::as_slice).unwrap_or_default();
                    if feeds.is_empty() {
                        self.plan(issue);
                    } else {
                        let feeds: Vec<&Plan> = feeds.iter().filter_map(|plan| plans.get(*plan)).collect();
                        self.plan_feeding_read(issue, &feeds, &batch);
                    }
                }
            }
        }
        self.feeders.clear();
        self.fed_by.clear();
    }

    /// Plans a collective, which in the paper's way blocks its ranks.
    fn blocking(&mut self, plan: impl FnOnce(&mut Self)) {
        if self.mode != Mode::Paper {
            return plan(self);
        }
        self.gathered = Some(Vec::new());
        plan(self);
        let jobs = self.gathered.take().unwrap_or_default();
        self.gatherings += 1;
        let number = self.gatherings;
        let mut counts = FxHashMap::default();
        for (rank, _) in &jobs {
            *counts.entry(*rank).or_insert(0_u32) += 1;
        }
        for (rank, mut job) in jobs {
            let count = counts.get(&rank).copied().unwrap_or_default();
            job.together = Some(Together { number, count });
            self.send(rank, job);
        }
    }

    /// Whether and how a group is replaced.
    fn decide(&mut self, batch: &[Issue], levels: &[u32], group: Group) -> Option<Plan> {
        let first = batch.get(*group.members.first()?)?;
        let Request::Write { size, .. } = first.request else { return None };
        let members = u32::try_from(collect::ranks(batch, &group.members)).ok()?;
        let flat = self.link.flat(members, size);
        let choice = match self.mode {
            Mode::Off => return None,
            Mode::Auto => self.link.choose(members, size),
            Mode::Paper => self.link.best(members, size),
        };
        if self.mode == Mode::Paper && (group.feed.is_some() || members + 1 < self.ranks()) {
            return None;
        }
        let (what, replaced) = match (group.feed, choice.shape) {
            (Some(_), _) => ("device to device", true),
            (None, Shape::Flat) => ("broadcast", false),
            _ => ("broadcast", true),
        };
        // Devices of one rank share a copy even if the ranks are served one by one.
        let shares = group.members.len() > members as usize;
        let level = group.members.first().and_then(|place| levels.get(*place)).copied().unwrap_or_default();
        let decision = self.decided(super::explain::Decision {
            what,
            level,
            ranks: members,
            commands: group.members.len(),
            bytes: size,
            predicted_p2p_ns: flat,
            predicted_ns: choice.predicted_ns,
            shape: choice.shape,
            segment: choice.segment,
            replaced,
            reason: if replaced { "predicted to be faster" } else { "no gain predicted" },
        });
        (replaced || shares).then_some(Plan { group, choice, decision })
    }

    fn explain_spreads(&mut self, batch: &[Issue], levels: &[u32], found: &Found) {
        for spread in &found.spreads {
            let ranks = u32::try_from(collect::ranks(batch, &spread.members)).unwrap_or(u32::MAX);
            let level =
                spread.members.first().and_then(|place| levels.get(*place)).copied().unwrap_or_default();
            // All bytes pass the root's link, whoever drives them.
            let bound = self.link.flat(1, spread.bytes) + f64::from(ranks) * self.link.overhead_ns;
            let decision = self.decided(super::explain::Decision {
                what: if spread.is_scatter { "scatter" } else { "gather" },
                level,
                ranks,
                commands: spread.members.len(),
                bytes: spread.bytes,
                predicted_p2p_ns: bound,
                predicted_ns: bound,
                shape: Shape::Flat,
                segment: super::plan::SEGMENT_BYTES,
                replaced: false,
                reason: "all bytes pass the root's link either way",
            });
            let ids: Vec<CommandId> =
                spread.members.iter().filter_map(|place| Some(batch.get(*place)?.id)).collect();
            self.watch_decision(decision, &ids);
        }
    }

    /// Members of one group: one job for each rank.
    fn plan_group(&mut self, plan: &Plan, members: Vec<Issue>) {
        let ids: Vec<CommandId> = members.iter().map(|member| member.id).collect();
        self.watch_decision(plan.decision, &ids);
        let (here, there): (Vec<Issue>, Vec<Issue>) =
            members.into_iter().partition(|member| member.rank == 0);
        here.into_iter().for_each(|member| self.plan(member));
        let Some((address, size)) = there.first().and_then(written) else { return };
        let ranks = by_rank(there);
        let lists = children(plan.choice.shape, u32::try_from(ranks.len()).unwrap_or(u32::MAX));
        let streams: Vec<(Rank, Stream)> = ranks
            .iter()
            .filter_map(|members| Some((members.first()?.rank, Stream::of(members.first()?.id.0))))
            .collect();
        let targets = |index: usize| -> Vec<Sink> {
            let list = lists.get(index).map(Vec::as_slice).unwrap_or_default();
            let ends = list.iter().filter_map(|child| streams.get(child - 1));
            ends.map(|(rank, stream)| Sink { to: End::Rank { rank: *rank, stream: *stream }, first: 0, size })
                .collect()
        };
        let parents = parents(&lists);
        let source_rank = match plan.group.feed {
            Some(_) => ids.iter().find_map(|id| self.feeders.get(id).copied()).unwrap_or_default(),
            None => 0,
        };
        let segment = plan.choice.segment;
        for (index, members) in (1..).zip(ranks) {
            let parent = parents.get(index).copied().unwrap_or(0);
            let from =
                if parent == 0 { source_rank } else { streams.get(parent - 1).map_or(0, |(rank, _)| *rank) };
            self.plan_member(members, from, targets(index), size, segment);
        }
        if plan.group.feed.is_some() {
            return;
        }
        let hazards = self.reads_into(address, size);
        let part = self.command();
        let waits = self.waits(0, &hazards);
        let work = Work::Move(Move {
            source: End::Host { address },
            sinks: targets(0),
            size,
            segment,
            early: false,
        });
        self.send(0, Job { id: part, device: 0, waits, work, together: None });
    }

    /// The members of one rank: one job receives for all of them, and passes on.
    fn plan_member(
        &mut self,
        members: Vec<Issue>,
        from: Rank,
        mut sinks: Vec<Sink>,
        size: u64,
        segment: u64,
    ) {
        let Some((id, rank, device)) = members.first().map(|first| (first.id, first.rank, first.device))
        else {
            return;
        };
        let mut waits = Vec::new();
        let mut locals = Vec::new();
        for member in &members {
            if let Request::Write { buffer, offset, size, .. } = member.request {
                locals.push(Sink { to: End::Buffer { buffer, offset }, first: 0, size });
            }
            waits.extend_from_slice(&member.waits);
            if member.id != id {
                self.same_as(member.id, id);
            }
        }
        waits.sort_unstable();
        waits.dedup();
        // The bytes come when the read has them; what it waits for need not be waited for here as well.
        waits.retain(|wait| !self.fed_by.contains(&(*wait, id)));
        // What a wait here waits for may be the sender's end, or that of who gets these bytes from here.
        let early = from != 0 || !sinks.is_empty();
        locals.append(&mut sinks);
        let source = End::Rank { rank: from, stream: Stream::of(id.0) };
        let waits = self.waits(rank, &waits);
        self.send(
            rank,
            Job {
                id,
                device,
                waits,
                work: Work::Move(Move { source, sinks: locals, size, segment, early }),
                together: None,
            },
        );
    }

    /// A read whose bytes also go straight to other ranks.
    fn plan_feeding_read(&mut self, issue: Issue, feeds: &[&Plan], batch: &[Option<Issue>]) {
        let Issue { id, rank, device, waits, request } = issue;
        let Request::Read { buffer, offset, size, address } = request else { return };
        self.reads.push(super::HostRange { start: address, end: address.saturating_add(size), command: id });
        let segment = feeds.first().map_or(super::plan::SEGMENT_BYTES, |plan| plan.choice.segment);
        let mut sinks = Vec::new();
        let part = self.command();
        if rank == 0 {
            sinks.push(Sink { to: End::Host { address }, first: 0, size });
        } else {
            sinks.push(Sink { to: End::Rank { rank: 0, stream: Stream::of(id.0) }, first: 0, size });
        }
        for plan in feeds {
            let members: Vec<&Issue> = plan
                .group
                .members
                .iter()
                .filter_map(|place| batch.get(*place)?.as_ref())
                .filter(|member| member.rank != 0)
                .collect();
            let mut firsts: Vec<(Rank, CommandId, u64, u64)> = Vec::new();
            for member in members {
                self.feeders.insert(member.id, rank);
                self.fed_by.insert((id, member.id));
                let Some((start, bytes)) = written(member) else { continue };
                if !firsts.iter().any(|(rank, ..)| *rank == member.rank) {
                    firsts.push((member.rank, member.id, start.saturating_sub(address), bytes));
                }
            }
            firsts.sort_by_key(|(rank, ..)| *rank);
            let lists = children(plan.choice.shape, u32::try_from(firsts.len()).unwrap_or(u32::MAX));
            let own = lists.first().map(Vec::as_slice).unwrap_or_default();
            for (rank, member, first, size) in own.iter().filter_map(|child| firsts.get(child - 1)) {
                sinks.push(Sink {
                    to: End::Rank { rank: *rank, stream: Stream::of(member.0) },
                    first: *first,
                    size: *size,
                });
            }
        }
        let source = End::Buffer { buffer, offset };
        let here = self.waits(rank, &waits);
        if rank == 0 {
            self.send(
                0,
                Job {
                    id,
                    device,
                    waits: here,
                    work: Work::Move(Move { source, sinks, size, segment, early: false }),
                    together: None,
                },
            );
            return;
        }
        self.send(
            rank,
            Job {
                id: part,
                device,
                waits: here,
                work: Work::Move(Move { source, sinks, size, segment, early: false }),
                together: None,
            },
        );
        let sinks = vec![Sink { to: End::Host { address }, first: 0, size }];
        let source = End::Rank { rank, stream: Stream::of(id.0) };
        self.send(
            0,
            Job {
                id,
                device: 0,
                waits: Vec::new(),
                work: Work::Move(Move { source, sinks, size, segment, early: false }),
                together: None,
            },
        );
        if let Some(track) = self.tracks.get_mut(&id) {
            track.rank = 0;
            track.inner = Some((rank, part));
        }
    }
}

fn written(issue: &Issue) -> Option<(u64, u64)> {
    match issue.request {
        Request::Write { address, size, .. } => Some((address, size)),
        _ => None,
    }
}

/// Members by rank, in the order of ranks.
fn by_rank(mut members: Vec<Issue>) -> Vec<Vec<Issue>> {
    members.sort_by_key(|member| (member.rank, member.id));
    let mut ranks: Vec<Vec<Issue>> = Vec::new();
    for member in members {
        match ranks.last_mut() {
            Some(last) if last.first().is_some_and(|first| first.rank == member.rank) => last.push(member),
            _ => ranks.push(vec![member]),
        }
    }
    ranks
}

/// The parent of each.
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

/// Measured by `Runtime` when the run begins, or given in `WTR_LINK`.
impl Root {
    /// Sets what the links are taken to be.
    pub fn set_link(&mut self, link: Link) {
        self.link = link;
    }

    /// Sets what is replaced.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }
}
