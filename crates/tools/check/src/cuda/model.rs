//! The reference model: performs the moments of a CUDA program one after the other on plain bytes,
//! and returns what each look at memory must see.

use std::collections::HashMap;

use super::ledger::{Ledger, Moment};
use super::plan::{Act, Job, Kernel, Program, Rows, Side, Work};
use crate::model::{Bytes, mix};
use crate::plan::Ptr;
use crate::random::pattern;

/// What the operations of a program see. The looks of one operation stand in the order in which
/// they happen. A function in a graph looks once per launch, under the operation number of the
/// launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The looks of each operation: the index of the graph's part, and the bytes.
    pub looks: HashMap<usize, Vec<(usize, Bytes)>>,
}

impl Expected {
    /// What one look sees.
    pub fn look(&self, op: usize, part: usize) -> Option<&Bytes> {
        self.looks.get(&op)?.iter().find(|(own, _)| *own == part).map(|(_, bytes)| bytes)
    }
}

/// Performs a program in the given order of its moments.
///
/// `ledger` must be that of `program`.
pub fn predict(program: &Program, ledger: &Ledger, order: &[usize]) -> Expected {
    let mut model = Model::new(program);
    for &node in order {
        model.moment(ledger, ledger.nodes[node].moment);
    }
    model.expected
}

/// Returns the first `len` bytes of a pattern.
pub fn pattern_bytes(seed: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len.next_multiple_of(4)];
    for (index, word) in bytes.chunks_exact_mut(4).enumerate() {
        word.copy_from_slice(&pattern(seed, index).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

struct Model<'a> {
    program: &'a Program,
    mems: HashMap<usize, Bytes>,
    areas: Vec<Bytes>,
    /// Bytes that synchronous copies have read from pageable memory.
    taken: HashMap<usize, Bytes>,
    expected: Expected,
}

impl<'a> Model<'a> {
    fn new(program: &'a Program) -> Self {
        // The runner clears the arrays before it starts.
        let cleared = |len: usize| Bytes { data: vec![0; len], known: vec![true; len] };
        Self {
            program,
            mems: HashMap::new(),
            areas: program.areas.iter().map(|area| cleared(area.len)).collect(),
            taken: HashMap::new(),
            expected: Expected::default(),
        }
    }

    fn moment(&mut self, ledger: &Ledger, moment: Moment) {
        let program = self.program;
        match moment {
            Moment::Start(op) => match &program.ops[op].act {
                Act::Alloc { mem, size, .. } => {
                    self.mems.insert(*mem, Bytes::unknown(*size));
                }
                Act::Store { to, len, seed } => self.store(*to, *len, *seed),
                Act::Check { at, len } => self.look(op, 0, *at, *len),
                _ => {}
            },
            Moment::Take(op) => {
                if let Act::Now { work: Work::Copy { from, len, .. }, .. } = &program.ops[op].act {
                    let bytes = self.get(*from, *len);
                    self.taken.insert(op, bytes);
                } else if let Act::Now { work: Work::Copy2D { from, rows, .. }, .. } =
                    &program.ops[op].act
                {
                    let bytes = self.get(*from, rows.span(rows.from_pitch));
                    self.taken.insert(op, bytes);
                }
            }
            Moment::Cmd(op) => match &program.ops[op].act {
                Act::Enqueue { work, .. } | Act::Now { work, .. } => self.work(op, 0, work),
                Act::AllocAsync { mem, size, .. } => {
                    self.mems.insert(*mem, Bytes::unknown(*size));
                }
                Act::Graph { graph, .. } => {
                    let parts = ledger.graphs.get(graph).map_or(&[][..], |graph| &graph.parts);
                    for (place, part) in parts.iter().enumerate() {
                        self.work(op, place, &part.work);
                    }
                }
                _ => {}
            },
            Moment::Root | Moment::End(_) => {}
        }
    }

    fn work(&mut self, op: usize, place: usize, work: &Work) {
        match work {
            Work::Copy { to, from, len } => {
                let bytes = self.taken.remove(&op).unwrap_or_else(|| self.get(*from, *len));
                self.set(*to, &bytes);
            }
            Work::Copy2D { to, from, rows } => {
                let span = rows.span(rows.from_pitch);
                let bytes = self.taken.remove(&op).unwrap_or_else(|| self.get(*from, span));
                for row in 0..rows.height {
                    self.set(
                        moved(*to, row * rows.to_pitch),
                        &bytes.part(row * rows.from_pitch, rows.width),
                    );
                }
            }
            Work::Peer { to, to_offset, from, from_offset, len } => {
                let bytes = self.get(Side::Device { mem: *from, offset: *from_offset }, *len);
                self.set(Side::Device { mem: *to, offset: *to_offset }, &bytes);
            }
            Work::Fill { mem, offset, len, unit, value } => {
                let unit = &value.to_le_bytes()[..*unit];
                let data = unit.iter().copied().cycle().take(*len).collect();
                let bytes = Bytes { data, known: vec![true; *len] };
                self.set(Side::Device { mem: *mem, offset: *offset }, &bytes);
            }
            Work::Fill2D { mem, offset, rows: Rows { width, height, to_pitch, .. }, value } => {
                let data = value.to_le_bytes().iter().copied().cycle().take(*width).collect();
                let bytes = Bytes { data, known: vec![true; *width] };
                for row in 0..*height {
                    self.set(Side::Device { mem: *mem, offset: offset + row * to_pitch }, &bytes);
                }
            }
            Work::Launch { kernel, a, a_offset, b, b_offset, count, seed, .. } => {
                let target = Side::Device { mem: *a, offset: a_offset * 4 };
                let (Kernel::Mix, Some(b)) = (kernel, b) else {
                    let bytes = Bytes {
                        data: pattern_bytes(*seed, count * 4),
                        known: vec![true; count * 4],
                    };
                    return self.set(target, &bytes);
                };
                let mut own = self.get(target, count * 4);
                let other = self.get(Side::Device { mem: *b, offset: b_offset * 4 }, count * 4);
                for at in (0..count * 4).step_by(4) {
                    match own.word(at).zip(other.word(at)) {
                        Some((one, two)) => {
                            own.data[at..at + 4]
                                .copy_from_slice(&mix(one, two, *seed).to_le_bytes());
                        }
                        None => own.forget(at, 4),
                    }
                }
                self.set(target, &own);
            }
            Work::Function { job, .. } => match job {
                Job::Store { to, len, seed } => self.store(*to, *len, *seed),
                Job::Check { at, len } => self.look(op, place, *at, *len),
                Job::Move { to, from, len } => {
                    let bytes = self.get(Side::Host(*from), *len);
                    self.set(Side::Host(*to), &bytes);
                }
                Job::Rest => {}
            },
        }
    }

    fn store(&mut self, to: Ptr, len: usize, seed: u32) {
        let bytes = Bytes { data: pattern_bytes(seed, len), known: vec![true; len] };
        self.set(Side::Host(to), &bytes);
    }

    fn look(&mut self, op: usize, place: usize, at: Ptr, len: usize) {
        let bytes = self.get(Side::Host(at), len);
        self.expected.looks.entry(op).or_default().push((place, bytes));
    }

    fn get(&self, side: Side, len: usize) -> Bytes {
        match side {
            Side::Host(at) => self.areas[at.area].part(at.offset, len),
            Side::Device { mem, offset } => self.mems[&mem].part(offset, len),
        }
    }

    fn set(&mut self, side: Side, bytes: &Bytes) {
        match side {
            Side::Host(at) => self.areas[at.area].put(at.offset, bytes),
            Side::Device { mem, offset } => {
                if let Some(target) = self.mems.get_mut(&mem) {
                    target.put(offset, bytes);
                }
            }
        }
    }
}

/// Returns the side, moved forward by a number of bytes.
pub fn moved(side: Side, bytes: usize) -> Side {
    match side {
        Side::Host(at) => Side::Host(Ptr { offset: at.offset + bytes, ..at }),
        Side::Device { mem, offset } => Side::Device { mem, offset: offset + bytes },
    }
}
