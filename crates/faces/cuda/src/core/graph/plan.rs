//! The plan of a graph: which streams get its work, and in which order.
//!
//! A lane is a stream of the plan. Consecutive work stays in one lane if possible, so that only
//! forks and joins need events. The first lane is the stream of the launch itself.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use penstock_cuda_sys::driver::*;

use super::Graph;
use super::node::Node;
use super::work::Work;
use crate::core::launch::PreparedKernel;
use crate::edge::{CuResult, Object as _};

/// Maximum number of lanes of one context. A device can seldom run more kernels at once, and each
/// lane costs a queue.
const LANES_MAX: usize = 4;

/// The work of one node.
pub(super) struct Step {
    /// The node, in the executable copy of the graph.
    pub(super) node: Arc<Node>,
    pub(super) work: Work,
    /// See `cuGraphNodeSetEnabled` in CUDA.
    pub(super) is_enabled: bool,
    /// For a kernel node: its kernel, with the parameters set.
    pub(super) kernel: PreparedKernel,
    /// Whether the step is the beginning of a child graph. The step of the child graph's node is
    /// its end.
    pub(super) is_entry: bool,
    before: Vec<usize>,
    /// Number of the context that must do the work; 0 if any can.
    context: u64,
}

/// One action of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A lane waits for the mark of a step in another lane.
    Wait { lane: usize, step: usize },
    /// Consecutive launches in one lane.
    Launches { lane: usize, steps: Range<usize> },
    /// Work other than a launch.
    Step { lane: usize, step: usize },
    /// Makes the mark of a step for which other lanes wait.
    Mark { lane: usize, step: usize },
}

#[derive(Clone, Debug)]
pub(super) struct Lane {
    /// Number of its context; 0 if that of the launch.
    pub(super) context: u64,
    /// Whether its first step waits for no other lane. Then the lane must wait for the start of the
    /// launch.
    pub(super) starts: bool,
    last: usize,
    count: usize,
    /// A bound for each lane: this lane's next step follows all steps of that lane with a lower
    /// index.
    seen: Vec<usize>,
}

#[derive(Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) actions: Vec<Action>,
    pub(super) lanes: Vec<Lane>,
    /// Lanes for which the first lane waits at the end.
    pub(super) joins: Vec<usize>,
}

/// Sorts nodes so that each comes after its dependencies, and otherwise in the order in which they
/// were made. Leaves out nodes that are part of a cycle or depend on one.
fn order(before: &[Vec<usize>]) -> Vec<usize> {
    let mut left: Vec<usize> = before.iter().map(Vec::len).collect();
    let mut after = vec![Vec::new(); before.len()];
    for (node, before) in before.iter().enumerate() {
        for from in before {
            if let Some(after) = after.get_mut(*from) {
                after.push(node);
            }
        }
    }
    let free =
        left.iter().enumerate().filter(|(_, left)| **left == 0).map(|(node, _)| Reverse(node));
    let mut free: BinaryHeap<_> = free.collect();
    let mut order = Vec::with_capacity(before.len());
    while let Some(Reverse(node)) = free.pop() {
        order.push(node);
        for next in after.get(node).into_iter().flatten() {
            if let Some(left) = left.get_mut(*next) {
                *left -= 1;
                if *left == 0 {
                    free.push(Reverse(*next));
                }
            }
        }
    }
    order
}

impl Plan {
    /// Plans a graph that nobody else changes.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if the graph has a cycle, or the code for a context that is gone.
    pub(super) fn of(graph: &Graph) -> CuResult<Self> {
        let mut plan = Self::default();
        plan.flatten(graph, None)?;
        plan.lay_out();
        Ok(plan)
    }

    fn step(
        &mut self,
        node: &Arc<Node>,
        work: Work,
        before: Vec<usize>,
        is_entry: bool,
    ) -> CuResult<usize> {
        let context = work.context()?.map_or(0, |context| context.number());
        let kernel = PreparedKernel::default();
        self.steps.push(Step {
            node: node.clone(),
            work,
            is_enabled: true,
            kernel,
            is_entry,
            before,
            context,
        });
        Ok(self.steps.len() - 1)
    }

    /// Adds the steps of a graph, all behind `entry`. Returns those that no other step of the graph
    /// follows.
    fn flatten(&mut self, graph: &Graph, entry: Option<usize>) -> CuResult<Vec<usize>> {
        let shape = graph.shape();
        let order = order(&shape.before);
        if order.len() < shape.nodes.len() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut step_of = vec![0; shape.nodes.len()];
        let mut is_leaf = vec![true; shape.nodes.len()];
        for at in &order {
            let (Some(node), Some(before)) = (shape.nodes.get(*at), shape.before.get(*at)) else {
                continue;
            };
            let mut after: Vec<usize> =
                before.iter().filter_map(|from| step_of.get(*from).copied()).collect();
            before.iter().for_each(|from| is_leaf[*from] = false);
            if after.is_empty() {
                after.extend(entry);
            }
            step_of[*at] = match node.work() {
                Work::Child(child) => {
                    let begin = self.step(node, Work::Empty, after, true)?;
                    let mut ends = self.flatten(&child, Some(begin))?;
                    if ends.is_empty() {
                        ends.push(begin);
                    }
                    self.step(node, Work::Child(child), ends, false)?
                }
                work => self.step(node, work, after, false)?,
            };
        }
        let leaves = step_of.iter().zip(&is_leaf).filter(|(_, is_leaf)| **is_leaf);
        Ok(leaves.map(|(step, _)| *step).collect())
    }

    /// Chooses a lane for a step. `known` has the bounds of [`Lane::seen`] after each earlier step.
    fn lane_for(&mut self, step: usize, lane_of: &[usize], known: &[Vec<usize>]) -> usize {
        let (context, before) = (self.steps[step].context, &self.steps[step].before);
        let fits = |lane: &Lane| context == 0 || lane.context == context;
        // The best choice is a lane whose last step is a predecessor of this step.
        let mut follows = before.iter().map(|from| (lane_of[*from], *from));
        if let Some((lane, _)) =
            follows.find(|(lane, from)| fits(&self.lanes[*lane]) && self.lanes[*lane].last == *from)
        {
            return lane;
        }
        // The second choice is a lane that is empty, or whose steps all come before this step.
        let idle = self.lanes.iter().enumerate().position(|(at, lane)| {
            let ends_before =
                |from: usize| known[from].get(at).is_some_and(|seen| *seen > lane.last);
            let is_behind = || before.iter().any(|from| ends_before(*from));
            fits(lane) && (lane.count == 0 || is_behind())
        });
        if let Some(lane) = idle {
            return lane;
        }
        let fitting = || self.lanes.iter().enumerate().filter(|(_, lane)| fits(lane));
        // A step that needs no context gets no new lane.
        if let Some((lane, _)) = fitting().min_by_key(|(_, lane)| lane.count)
            && (context == 0 || fitting().count() >= LANES_MAX)
        {
            return lane;
        }
        let lanes = self.lanes.len() + 1;
        for lane in &mut self.lanes {
            lane.seen.push(0);
        }
        let seen = vec![0; lanes];
        self.lanes.push(Lane { context, starts: false, last: 0, count: 0, seen });
        lanes - 1
    }

    /// Gives each step its lane, and makes the actions.
    fn lay_out(&mut self) {
        let first =
            self.steps.iter().map(|step| step.context).find(|context| *context != 0).unwrap_or(0);
        self.lanes.push(Lane { context: first, starts: false, last: 0, count: 0, seen: vec![0] });
        let (mut lane_of, mut waits, mut is_marked) =
            (Vec::new(), Vec::new(), vec![false; self.steps.len()]);
        // The bounds of [`Lane::seen`] after each step.
        let mut known: Vec<Vec<usize>> = Vec::new();
        for step in 0..self.steps.len() {
            let lane = self.lane_for(step, &lane_of, &known);
            let mut awaited = Vec::new();
            for from in self.steps[step].before.clone() {
                let other = lane_of[from];
                if other == lane || self.lanes[lane].seen[other] > from {
                    continue;
                }
                awaited.push(from);
                is_marked[from] = true;
                for (seen, then) in self.lanes[lane].seen.iter_mut().zip(&known[from]) {
                    *seen = (*seen).max(*then);
                }
            }
            let own = &mut self.lanes[lane];
            if own.count == 0 {
                own.starts = awaited.is_empty();
            }
            (own.last, own.count) = (step, own.count + 1);
            own.seen[lane] = step + 1;
            known.push(own.seen.clone());
            lane_of.push(lane);
            waits.push(awaited);
        }
        self.add_actions(&lane_of, &waits, &is_marked);
        let used = |lane: &Lane| lane.count > 0;
        let is_open = |at: usize, lane: &Lane| used(lane) && self.lanes[0].seen[at] <= lane.last;
        let joins = self.lanes.iter().enumerate().skip(1).filter(|(at, lane)| is_open(*at, lane));
        self.joins = joins.map(|(at, _)| at).collect();
    }

    fn add_actions(&mut self, lane_of: &[usize], waits: &[Vec<usize>], is_marked: &[bool]) {
        for (step, of) in self.steps.iter().enumerate() {
            let lane = lane_of[step];
            self.actions.extend(waits[step].iter().map(|step| Action::Wait { lane, step: *step }));
            match (&of.work, self.actions.last_mut()) {
                (Work::Kernel(_), Some(Action::Launches { lane: before, steps }))
                    if *before == lane && steps.end == step =>
                {
                    steps.end = step + 1;
                }
                (Work::Kernel(_), _) => {
                    self.actions.push(Action::Launches { lane, steps: step..step + 1 })
                }
                (Work::Empty | Work::Child(_), _) => {}
                _ => self.actions.push(Action::Step { lane, step }),
            }
            if is_marked[step] {
                self.actions.push(Action::Mark { lane, step });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::bool::weighted;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn graph(edges: &[&[usize]]) -> Arc<Graph> {
        let graph = Graph::create();
        let mut made: Vec<u64> = Vec::new();
        for before in edges {
            let before: Vec<u64> = before.iter().map(|at| made[*at]).collect();
            made.push(graph.add(Work::Free(1), &before).unwrap().number());
        }
        graph
    }

    /// As `Plan::of`, with all steps in one context.
    fn plan(edges: &[&[usize]]) -> Plan {
        let mut plan = Plan::default();
        plan.flatten(&graph(edges), None).unwrap();
        plan.steps.iter_mut().for_each(|step| step.context = 1);
        plan.lay_out();
        plan
    }

    #[test]
    fn a_chain_needs_one_lane_and_no_events() {
        let plan = plan(&[&[], &[0], &[1], &[2]]);
        assert_eq!((plan.lanes.len(), plan.joins.len()), (1, 0));
        assert_eq!(plan.actions.len(), 4);
    }

    #[test]
    fn what_forks_joins_once_and_lanes_are_used_again() {
        // A fork into two and a join, twice.
        let plan = plan(&[&[], &[0], &[0], &[1, 2], &[3], &[3], &[4, 5]]);
        assert_eq!((plan.lanes.len(), plan.joins.len()), (2, 0));
        let waits = plan.actions.iter().filter(|action| matches!(action, Action::Wait { .. }));
        assert_eq!(waits.count(), 4);
        assert_eq!(plan.lanes.iter().map(|lane| lane.starts).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn independent_steps_are_joined_at_the_end_and_do_not_get_a_queue_each() {
        let plan = plan(&[&[][..]; 10]);
        assert_eq!(plan.lanes.len(), LANES_MAX);
        assert_eq!(plan.joins, [1, 2, 3]);
        assert!(plan.lanes.iter().all(|lane| lane.starts));
    }

    #[test]
    fn a_circle_is_no_plan() {
        let graph = graph(&[&[], &[0], &[1]]);
        let nodes = graph.nodes();
        graph.connect(&[(nodes[2], nodes[1])]).unwrap();
        assert_eq!(Plan::of(&graph).err(), Some(CUDA_ERROR_INVALID_VALUE));
    }

    /// Returns the predecessors of each step of an acyclic graph.
    fn edges() -> impl Strategy<Value = Vec<Vec<usize>>> {
        vec(vec(weighted(0.25), 30), 1..=30).prop_map(|rows| {
            let before =
                |(step, row): (usize, Vec<bool>)| (0..step).filter(|other| row[*other]).collect();
            rows.into_iter().enumerate().map(before).collect()
        })
    }

    proptest! {
        /// In random graphs each step runs behind all steps that it follows: in the same lane, or
        /// behind a wait there.
        #[test]
        fn nothing_overtakes_what_it_comes_after(edges in edges()) {
            let size = edges.len();
            let plan = plan(&edges.iter().map(Vec::as_slice).collect::<Vec<_>>());
            // The steps that the next action of each lane follows.
            let mut behind: Vec<Vec<bool>> = vec![vec![false; size]; plan.lanes.len()];
            let mut marks: Vec<Option<Vec<bool>>> = vec![None; size];
            for action in &plan.actions {
                match action {
                    Action::Wait { lane, step } => {
                        let mark = marks[*step].as_ref().unwrap();
                        behind[*lane].iter_mut().zip(mark).for_each(|(own, other)| *own |= other);
                    }
                    Action::Step { lane, step } => {
                        let known = edges[*step].iter().all(|from| behind[*lane][*from]);
                        prop_assert!(known, "{edges:?}");
                        behind[*lane][*step] = true;
                    }
                    Action::Mark { lane, step } => marks[*step] = Some(behind[*lane].clone()),
                    Action::Launches { .. } => unreachable!(),
                }
            }
            for join in &plan.joins {
                let other = behind[*join].clone();
                behind[0].iter_mut().zip(other).for_each(|(own, other)| *own |= other);
            }
            prop_assert!(behind[0].iter().all(|done| *done), "{edges:?}");
        }
    }
}
