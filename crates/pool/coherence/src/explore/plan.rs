//! Random generation of programs.

use super::program::{Act, Command, Fault, HOST_CELLS, Op, PlannedAllocation, Program, Span};
use super::random::Random;
use crate::Access;

const OPS_MAX: usize = 14;
const THREADS_MAX: usize = 2;
/// A property that a program may have. Most programs lack some of them, so that the others meet
/// more often.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Feature {
    UserEvents,
    Waits,
    Stores,
    Writes,
    Reads,
    Copies,
    Markers,
    Barriers,
    Functions,
    Kernels,
    WaitLists,
    Refusals,
    NonBlocking,
}

/// The features that a program may use, as bits.
#[derive(Clone, Copy)]
struct Features(u64);

impl Features {
    fn any(random: &mut Random) -> Self {
        Self(if random.once_in(3) { u64::MAX } else { random.next() })
    }

    fn has(self, feature: Feature) -> bool {
        self.0 >> feature as u32 & 1 != 0
    }
}

/// Number of transfers among which the failing one is drawn.
const FAILING_TRANSFERS: usize = 3;

impl Program {
    pub(crate) fn plan(random: &mut Random) -> Self {
        let places = [1, 1, 2, 2, 3, 3][random.below(6)];
        // Two places of one node are two drivers of that node.
        let nodes: Vec<u32> =
            (0..places).map(|place| if random.once_in(4) { 0 } else { place }).collect();
        // In half of the programs the first queues are spread over the places.
        let (is_spread, first) = (random.once_in(2), random.below(nodes.len()));
        let queues =
            (0..2 + random.below(2).max(usize::from(is_spread && nodes.len() > 2))).map(|queue| {
                let place = if is_spread {
                    (first + queue) % nodes.len()
                } else {
                    random.below(nodes.len())
                };
                (place, !random.once_in(3))
            });
        let queues = queues.collect();
        // In one place the host shares buffers, but not images, so programs need both. In three
        // places a single allocation moves more often.
        let (count, images) = match places {
            1 => (2, 2),
            2 => (1 + random.below(2), 4),
            _ => (1, 4),
        };
        let allocations = (0..count).map(|_| {
            let cells = 2 + random.below(4).min(random.below(4));
            let (is_indivisible, has_initial) = (random.once_in(images), random.once_in(3));
            PlannedAllocation { cells, is_indivisible, has_initial }
        });
        let allocations = allocations.collect();
        let mut program = Self { nodes, queues, allocations, ops: Vec::new(), fault: None };
        if program.nodes.len() > 1 {
            program.fault = match random.below(8) {
                0 | 1 => Some(Fault::Transfer(random.below(FAILING_TRANSFERS))),
                2 => program.any_node(random).map(Fault::Node),
                3 => Some(Fault::NoMemory(random.below(program.nodes.len()))),
                _ => None,
            };
        }
        let threads = 1 + random.below(THREADS_MAX);
        let features = Features::any(random);
        let ops = 3 + random.below(OPS_MAX - 2);
        let mut tries = 0;
        while program.ops.len() < ops && tries < 6 * OPS_MAX {
            tries += 1;
            let Some(op) = program.any_op(features, random) else { continue };
            program.ops.push((random.below(threads), op));
            if !program.is_valid() {
                program.ops.pop();
            }
        }
        program.set_all(threads, random);
        // An event that only a thread that waits for it could set is removed.
        while let Some(of) = program.first_unset() {
            match program.removed(of).filter(Self::is_valid) {
                Some(smaller) => program = smaller,
                None => program.ops.clear(),
            }
        }
        program
    }

    /// Returns a node that can be lost because there is another one.
    fn any_node(&self, random: &mut Random) -> Option<u32> {
        let node = self.nodes[random.below(self.nodes.len())];
        self.nodes.iter().any(|other| *other != node).then_some(node)
    }

    /// Sets all user events that are not set yet.
    fn set_all(&mut self, threads: usize, random: &mut Random) {
        let is_set =
            |of: usize| self.ops.iter().any(|(_, op)| matches!(op, Op::Set(set, _) if *set == of));
        let made = (0..self.ops.len()).filter(|index| matches!(self.ops[*index].1, Op::Event));
        let open: Vec<usize> = made.filter(|of| !is_set(*of)).collect();
        for of in open {
            let ok = !random.once_in(5);
            // Some thread can do this without closing a circle: one that waits for nothing else.
            let first = random.below(threads);
            for thread in (0..threads).map(|step| (first + step) % threads) {
                self.ops.push((thread, Op::Set(of, ok)));
                if self.is_valid() {
                    break;
                }
                self.ops.pop();
            }
        }
    }

    /// Returns `None` if the operation drawn would use a feature that the program lacks.
    fn any_op(&self, features: Features, random: &mut Random) -> Option<Op> {
        let pick = |random: &mut Random, wanted: fn(&Op) -> bool| {
            let all: Vec<usize> =
                (0..self.ops.len()).filter(|index| wanted(&self.ops[*index].1)).collect();
            all.get(random.below(all.len())).copied()
        };
        match random.below(12) {
            0 => features.has(Feature::UserEvents).then_some(Op::Event),
            1 => {
                let of = pick(random, |op| matches!(op, Op::Event))?;
                Some(Op::Set(of, !random.once_in(4)))
            }
            2 if features.has(Feature::Waits) => {
                Some(Op::Wait(pick(random, |op| op.command().is_some())?))
            }
            3 if features.has(Feature::Stores) => Some(Op::Store(random.below(HOST_CELLS))),
            2 | 3 => None,
            _ => Some(Op::Enqueue(self.any_command(features, random)?)),
        }
    }

    fn any_command(&self, features: Features, random: &mut Random) -> Option<Command> {
        let with_event: Vec<usize> = (0..self.ops.len())
            .filter(|index| matches!(self.ops[*index].1, Op::Enqueue(_) | Op::Event))
            .collect();
        let count =
            if features.has(Feature::WaitLists) { [0, 0, 1, 1, 2][random.below(5)] } else { 0 };
        let mut waits: Vec<usize> = (0..count)
            .filter_map(|_| {
                // Mostly recent events, because long chains exercise the most state.
                let back = random.below(4).min(random.below(8));
                with_event.len().checked_sub(1 + back).and_then(|at| with_event.get(at)).copied()
            })
            .collect();
        waits.sort_unstable();
        waits.dedup();
        let queue = random.below(self.queues.len());
        let act = self.any_act(random);
        let feature = match act {
            Act::Write(..) => Feature::Writes,
            Act::Read(..) => Feature::Reads,
            Act::Copy(..) => Feature::Copies,
            Act::Marker => Feature::Markers,
            Act::Barrier => Feature::Barriers,
            Act::Run(_) => Feature::Functions,
            Act::Kernel(_) => Feature::Kernels,
        };
        if !features.has(feature) {
            return None;
        }
        let is_transfer = matches!(act, Act::Write(..) | Act::Read(..));
        let can_be_refused = !matches!(act, Act::Marker | Act::Barrier | Act::Run(_));
        // Copies that the host makes itself do not fail.
        let can_be_refused = can_be_refused && (self.nodes.len() > 1 || !is_transfer);
        let is_refused = features.has(Feature::Refusals) && can_be_refused && random.once_in(10);
        let is_blocking = is_transfer && (!features.has(Feature::NonBlocking) || random.once_in(2));
        Some(Command { queue, waits, act, is_blocking, is_refused })
    }

    fn any_span(&self, random: &mut Random) -> Span {
        let of = random.below(self.allocations.len());
        let cells = self.allocations[of].cells;
        let at = random.below(cells);
        let count = match random.below(3) {
            0 => 1,
            1 => cells - at,
            _ => 1 + random.below(cells - at),
        };
        Span { of, at, count }
    }

    fn any_act(&self, random: &mut Random) -> Act {
        let host = |random: &mut Random, span: Span| {
            let pitch = 1 + random.below(2);
            let count = span.count.min(1 + (HOST_CELLS - 1) / pitch);
            let reach = 1 + (count - 1) * pitch;
            (Span { count, ..span }, random.below(1 + HOST_CELLS - reach), pitch)
        };
        match random.below(11) {
            0..4 => {
                let span = self.any_span(random);
                let (span, first, pitch) = host(random, span);
                if random.once_in(2) {
                    Act::Write(span, first, pitch)
                } else {
                    Act::Read(span, first, pitch)
                }
            }
            4 => {
                let (from, to) = (self.any_span(random), self.any_span(random));
                let count = from.count.min(to.count);
                if from.of == to.of {
                    return Act::Marker;
                }
                Act::Copy(Span { count, ..from }, Span { count, ..to })
            }
            5 => Act::Marker,
            6 => Act::Barrier,
            7 => Act::Run(random.below(HOST_CELLS)),
            _ => {
                let access = |random: &mut Random| match random.below(3) {
                    0 => Access::Read,
                    1 => Access::Write,
                    _ => Access::Overwrite,
                };
                let mut uses = vec![(self.any_span(random), access(random))];
                if random.once_in(2) {
                    let more = self.any_span(random);
                    // One use per allocation: what a kernel does to bytes that it gets twice is its
                    // own affair.
                    if more.of != uses[0].0.of {
                        uses.push((more, access(random)));
                    }
                }
                Act::Kernel(uses)
            }
        }
    }
}
