//! Dynamic collective replacement: transfers that the program issued one by one are done together
//! if that is faster.
//!
//! A broadcast becomes one tree or two. The source sends to some ranks, which pass on what they
//! get, piece by piece; a member has ended when its own bytes have arrived. The devices of one rank
//! share one copy on the link. Bytes that come from another device (a read and writes of its bytes,
//! or copies) go from rank to rank and do not wait for the root.
//!
//! Scatters and gathers are found and explained, but not replaced. All their bytes pass the root's
//! link once in any case, and the batch has already saved what a collective saves elsewhere: the
//! messages for each command.

use rustc_hash::FxHashMap;

use super::Root;
use super::collect::{self, Group, Source, Spread};
use super::cost::{self, SEGMENT_BYTES, SEGMENT_BYTES_MIN, Shape};
use super::explain::Decision;
use super::mode::Mode;
use super::planning::{GroupPlan, Planning, at};
use crate::command::{BlockingCollective, Command, CommandId};
use crate::request::IssuedCommand;

impl Root {
    /// Finds the commands of a batch that belong together.
    pub(super) fn look_together(&mut self, batch: Vec<IssuedCommand>) -> Planning {
        let found = collect::find(&batch);
        let levels = collect::levels(&batch);
        let mut order: Vec<usize> = (0..batch.len()).collect();
        order.sort_by_key(|place| levels.get(*place).copied());
        let mut plans: Vec<GroupPlan> = Vec::new();
        let mut plan_of: Vec<Option<usize>> = vec![None; batch.len()];
        let mut fed: Vec<Vec<usize>> = vec![Vec::new(); batch.len()];
        self.explain_spreads(&batch, &levels, &found.spreads);
        let loads = self.loads(&batch, &levels, &found.groups);
        // All groups that a read feeds use pieces of one size, because they are one move there.
        let mut segments: FxHashMap<Source, u64> = FxHashMap::default();
        for group in found.groups {
            let (source, level) = (group.source, level(&levels, &group.members));
            let least_ns =
                loads.get(&level).copied().filter(|_| matches!(source, Source::Buffer(_)));
            let Some(mut plan) = self.decide(&batch, level, group, least_ns.unwrap_or_default())
            else {
                continue;
            };
            if matches!(source, Source::Read(_)) {
                plan.choice.segment = *segments.entry(source).or_insert(plan.choice.segment);
            }
            self.lay_out(&mut plan, &batch);
            for member in &plan.group.members {
                if let Some(place) = plan_of.get_mut(*member) {
                    *place = Some(plans.len());
                }
            }
            if let Source::Read(read) = source
                && let Some(feeds) = fed.get_mut(read)
            {
                feeds.push(plans.len());
            }
            plans.push(plan);
        }
        let spread_of = self.paper_spreads(&batch, &found.spreads);
        let batch = batch.into_iter().map(Some).collect();
        Planning { batch, order, next: 0, plans, plan_of, fed, spreads: found.spreads, spread_of }
    }

    /// Plans the next `count` commands of a batch, or a few more if some are planned together.
    /// Returns whether there are more.
    pub(super) fn plan_next(&mut self, planning: &mut Planning, count: usize) -> bool {
        let end = planning.next.saturating_add(count);
        while planning.next < end {
            let Some(place) = planning.order.get(planning.next).copied() else { return false };
            planning.next += 1;
            if let Some(plan) = at(&planning.plan_of, place) {
                let Some(members) = planning.plans.get(plan).map(|plan| plan.group.members.clone())
                else {
                    continue;
                };
                let members = planning.take(&members);
                if let Some(plan) = planning.plans.get(plan).filter(|_| !members.is_empty()) {
                    self.blocking(|root| root.plan_group(plan, members));
                }
            } else if let Some(spread) = at(&planning.spread_of, place) {
                let Some(members) =
                    planning.spreads.get(spread).map(|spread| spread.members.clone())
                else {
                    continue;
                };
                let members = planning.take(&members);
                if !members.is_empty() {
                    self.blocking(|root| members.into_iter().for_each(|member| root.plan(member)));
                }
            } else {
                let Some(issue) = planning.batch.get_mut(place).and_then(Option::take) else {
                    continue;
                };
                let feeds = planning.fed.get(place).map(Vec::as_slice).unwrap_or_default();
                if feeds.is_empty() {
                    self.plan(issue);
                } else {
                    let feeds: Vec<&GroupPlan> =
                        feeds.iter().filter_map(|plan| planning.plans.get(*plan)).collect();
                    self.plan_feeding_read(issue, &feeds, &planning.batch);
                }
            }
        }
        planning.next < planning.order.len()
    }

    /// Finds the spreads that the paper's way replaces: those over all ranks, with adjoining
    /// ranges.
    fn paper_spreads(&self, batch: &[IssuedCommand], spreads: &[Spread]) -> Vec<Option<usize>> {
        let mut spread_of = vec![None; batch.len()];
        if self.mode != Mode::Paper {
            return spread_of;
        }
        for (index, spread) in spreads.iter().enumerate() {
            let ranks = collect::ranks(batch, &spread.members, 0) as u64 + 1;
            let is_whole = spread.is_contiguous && ranks >= self.ranks().into();
            for member in spread.members.iter().filter(|_| is_whole) {
                if let Some(place) = spread_of.get_mut(*member) {
                    *place = Some(index);
                }
            }
        }
        spread_of
    }

    /// Returns for each level how many ns all copies of its groups keep a link busy if all ranks
    /// share the work.
    fn loads(
        &self,
        batch: &[IssuedCommand],
        levels: &[u32],
        groups: &[Group],
    ) -> FxHashMap<u32, f64> {
        let mut loads = FxHashMap::default();
        for group in groups {
            if let Source::Buffer(rank) = group.source {
                let bytes = size(batch, group).unwrap_or_default() as f64;
                let all =
                    bytes * collect::ranks(batch, &group.members, rank) as f64 * self.link.byte_ns;
                *loads.entry(level(levels, &group.members)).or_insert(0.0) +=
                    all / f64::from(self.ranks().max(1));
            }
        }
        loads
    }

    /// Plans a collective. In the paper's way it blocks its ranks.
    fn blocking(&mut self, plan: impl FnOnce(&mut Self)) {
        if self.mode != Mode::Paper {
            return plan(self);
        }
        self.blocking_jobs = Some(Vec::new());
        plan(self);
        let jobs = self.blocking_jobs.take().unwrap_or_default();
        self.blocking_collectives += 1;
        let number = self.blocking_collectives;
        let mut counts = FxHashMap::default();
        for (rank, _) in &jobs {
            *counts.entry(*rank).or_insert(0_u32) += 1;
        }
        for (rank, mut job) in jobs {
            let count = counts.get(&rank).copied().unwrap_or_default();
            job.collective = Some(BlockingCollective { number, count });
            self.send(rank, job);
        }
    }

    /// Decides whether and how a group is replaced. Other transfers keep its members' links busy
    /// for `least_ns`.
    fn decide(
        &mut self,
        batch: &[IssuedCommand],
        level: u32,
        group: Group,
        least_ns: f64,
    ) -> Option<GroupPlan> {
        let size = size(batch, &group)?;
        let source = match group.source {
            Source::Buffer(rank) => rank,
            _ => 0,
        };
        let members = u32::try_from(collect::ranks(batch, &group.members, source)).ok()?;
        let flat = self.link.flat(members, size);
        let choice = match self.mode {
            Mode::Off => return None,
            Mode::Auto => self.link.choose(members, size, least_ns),
            Mode::Paper => self.link.best_of_one(members, size),
        };
        let choice = match self.shape {
            Some(shape) if self.mode == Mode::Auto => {
                cost::Choice { shape, segment: SEGMENT_BYTES_MIN, ..choice }
            }
            _ => choice,
        };
        if self.mode == Mode::Paper
            && (group.source != Source::Memory || members + 1 < self.ranks())
        {
            return None;
        }
        let (what, replaced) = match (group.source, choice.shape) {
            (Source::Read(_), _) => ("device to device", true),
            (Source::Memory, shape) => ("broadcast", shape != Shape::Flat),
            (Source::Buffer(_), shape) => ("broadcast of a buffer", shape != Shape::Flat),
        };
        // Devices of one rank share a copy even if the source sends to each rank.
        let shares = group.members.len() > members as usize;
        let decision = self.explain.add(
            Decision {
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
            },
            &*self.clock,
        );
        (replaced || shares).then(|| GroupPlan::new(group, source, choice, decision, size))
    }

    fn explain_spreads(&mut self, batch: &[IssuedCommand], levels: &[u32], spreads: &[Spread]) {
        for spread in spreads {
            let ranks =
                u32::try_from(collect::ranks(batch, &spread.members, 0)).unwrap_or(u32::MAX);
            let level = level(levels, &spread.members);
            // All bytes pass the root's link in any case.
            let bound = self.link.flat(1, spread.bytes) + f64::from(ranks) * self.link.overhead_ns;
            let decision = self.explain.add(
                Decision {
                    what: if spread.is_scatter { "scatter" } else { "gather" },
                    level,
                    ranks,
                    commands: spread.members.len(),
                    bytes: spread.bytes,
                    predicted_p2p_ns: bound,
                    predicted_ns: bound,
                    shape: Shape::Flat,
                    segment: SEGMENT_BYTES,
                    replaced: false,
                    reason: "all bytes pass the root's link either way",
                },
                &*self.clock,
            );
            let ids: Vec<CommandId> =
                spread.members.iter().filter_map(|place| Some(batch.get(*place)?.id)).collect();
            self.explain.watch(decision, &ids);
        }
    }
}

/// Returns the level of these commands, which is the same for all.
fn level(levels: &[u32], members: &[usize]) -> u32 {
    members.first().and_then(|place| levels.get(*place)).copied().unwrap_or_default()
}

/// Returns the number of bytes that each member of a group gets.
fn size(batch: &[IssuedCommand], group: &Group) -> Option<u64> {
    match batch.get(*group.members.first()?)?.command {
        Command::Write { size, .. } | Command::Copy { size, .. } => Some(size),
        _ => None,
    }
}
