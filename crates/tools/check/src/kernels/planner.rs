//! Makes a kernel from a seed: inserts small groups of statements at random places of the list, and
//! keeps those with which the emulator still determines one result.

mod groups;

use super::emulate;
use super::feature::Feature;
use super::program::{
    Act, Compare, Condition, LANES, Launch, Op, Program, REGISTERS, THREADS_MAX, Value,
};
use super::rules::{RULES, Rule};
use crate::draft::some_of;
use crate::random::Random;

/// Deepest nesting of branches and loops.
const DEPTH_MAX: usize = 4;

struct Planner {
    random: Random,
    on: Vec<Feature>,
    program: Program,
    /// Conditions that the branches of a kernel share. Compilers join branches with one condition.
    conditions: Vec<Condition>,
    rules: Vec<&'static Rule>,
    next: usize,
}

/// Returns the kernel of a seed, with about this number of statements.
pub fn plan(seed: u64, ops: usize, features: &[Feature]) -> Program {
    let mut random = Random::new(seed);
    let on = some_of(features, &mut random);
    let block = match random.below(4) {
        0 => random.between(1, THREADS_MAX),
        1 => LANES,
        _ => random.pick(&[20, 33, 40, 64, 64, 96, 100, 128]).unwrap_or(LANES),
    };
    let launch = |random: &mut Random| Launch {
        blocks: random.between(1, 2),
        parameter: random.word() & 0xff,
        seed: random.number(),
    };
    let launches = (0..3).map(|_| launch(&mut random)).collect();
    let program = Program { seed, threads: 1, block, launches, ops: Vec::new() };
    let mut planner =
        Planner { random, on, program, conditions: Vec::new(), rules: Vec::new(), next: 0 };
    planner.rules = RULES.iter().filter(|rule| planner.allows(rule)).collect();
    planner.conditions = vec![planner.switch(), planner.one(), planner.new_condition()];
    planner.grow(ops);
    planner.program
}

/// Drops brackets without partners. Returns `None` if the emulator refuses the rest.
pub fn repair(program: &Program) -> Option<Program> {
    let program = program.balanced();
    is_determined(&program).then_some(program)
}

fn is_determined(program: &Program) -> bool {
    program.launches.iter().all(|launch| emulate::after(program, launch).is_ok())
}

impl Planner {
    fn has(&self, feature: Feature) -> bool {
        self.on.contains(&feature)
    }

    fn allows(&self, rule: &Rule) -> bool {
        let has = |parts: &[&str]| parts.iter().any(|part| rule.text.contains(part));
        let wide = has(&["@W", "@X", "16", "8"]);
        if has(&["call"]) {
            self.has(Feature::Calls)
        } else if has(&["@F", "@T", "@D", "@H", ".f32", ".f16"]) {
            self.has(Feature::Floats)
        } else {
            !wide || self.has(Feature::Wide)
        }
    }

    fn grow(&mut self, ops: usize) {
        let wanted = self.random.between(ops / 8, ops / 2);
        // Most groups fit where they are put. The bound is for kernels in which few do.
        for _ in 0..wanted * 2 {
            if self.program.ops.len() >= wanted {
                break;
            }
            let at = self.random.between(0, self.program.ops.len());
            let (depth, in_loop) = self.around(at);
            let group = self.group(depth < DEPTH_MAX, in_loop);
            if !group.is_empty() {
                self.insert(at, group);
            }
        }
    }

    /// Returns how many brackets surround a place, and whether one of them is a loop.
    fn around(&self, at: usize) -> (usize, bool) {
        let (mut depth, mut loops) = (0_usize, Vec::new());
        for op in &self.program.ops[..at] {
            match &op.act {
                Act::If { .. } => depth += 1,
                Act::Loop { id, .. } => {
                    depth += 1;
                    loops.push(*id);
                }
                Act::End { id } => {
                    depth = depth.saturating_sub(1);
                    loops.retain(|open| open != id);
                }
                _ => {}
            }
        }
        (depth, !loops.is_empty())
    }

    fn insert(&mut self, at: usize, group: Vec<Act>) {
        let harmless = |op: &Op| {
            matches!(op.act, Act::Compute { .. } | Act::StoreOwn { .. } | Act::LoadOwn { .. })
        };
        let before = self.program.ops.clone();
        let ops = group.into_iter().map(|act| Op { thread: 0, delay_us: 0, act });
        self.program.ops.splice(at..at, ops);
        // A value may change where threads go and what they use, so only kernels without both are
        // determined in any case.
        if !self.program.ops.iter().all(harmless) && !is_determined(&self.program) {
            self.program.ops = before;
        }
    }

    fn id(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    fn register(&mut self) -> u8 {
        u8::try_from(self.random.below(REGISTERS)).unwrap_or(0)
    }

    fn constant(&mut self) -> u32 {
        match self.random.below(4) {
            0 => self.random.word(),
            1 => [0, 1, 31, 32, 33, u32::MAX, 1 << 31, 0xff][self.random.below(8)],
            _ => u32::try_from(self.random.below(40)).unwrap_or(0),
        }
    }

    fn small(&mut self, bound: usize) -> u32 {
        u32::try_from(self.random.below(bound)).unwrap_or(0)
    }

    /// Returns a value that all threads of a block have.
    fn uniform(&mut self) -> Value {
        let loops = self.program.ops.iter().filter_map(|op| match &op.act {
            Act::Loop { id, .. } => Some(*id),
            _ => None,
        });
        let loops: Vec<usize> = loops.collect();
        match (self.random.below(6), self.random.pick(&loops)) {
            (0, _) => Value::Block,
            (1 | 2, Some(id)) => Value::Turn(id),
            _ => Value::Parameter,
        }
    }

    fn value(&mut self) -> Value {
        match self.random.below(12) {
            0 => Value::Thread,
            1 => Value::Lane,
            2 => self.uniform(),
            _ => Value::Register(self.register()),
        }
    }

    /// A condition that all threads of a block share.
    fn switch(&mut self) -> Condition {
        let (value, bits) = (self.uniform(), 1 << self.random.below(4));
        let compare = if self.random.chance(50) { Compare::Eq } else { Compare::Ne };
        Condition { value, bits, compare, with: Value::Constant(0) }
    }

    /// A condition of one thread.
    fn one(&mut self) -> Condition {
        let with = Value::Constant(if self.random.chance(70) { 0 } else { self.small(3) });
        Condition { value: Value::Thread, bits: u32::MAX, compare: Compare::Eq, with }
    }

    fn new_condition(&mut self) -> Condition {
        let compare = [
            Compare::Eq,
            Compare::Ne,
            Compare::Lt,
            Compare::Ge,
            Compare::LtSigned,
            Compare::GeSigned,
        ][self.random.below(6)];
        match self.random.below(10) {
            0..3 => self.switch(),
            3 => self.one(),
            4..7 => {
                let value = if self.random.chance(70) { Value::Thread } else { Value::Lane };
                let bound = if self.random.chance(40) { 3 } else { self.program.block };
                let with = self.small(bound);
                Condition { value, bits: u32::MAX, compare, with: Value::Constant(with) }
            }
            7 | 8 => {
                let (value, bits) = (Value::Register(self.register()), 3);
                Condition { value, bits, compare, with: Value::Constant(self.small(4)) }
            }
            _ => {
                let with = if self.random.chance(30) {
                    Value::Constant(self.constant())
                } else {
                    Value::Register(self.register())
                };
                Condition { value: Value::Register(self.register()), bits: u32::MAX, compare, with }
            }
        }
    }

    fn condition(&mut self) -> Condition {
        match self.random.pick(&self.conditions) {
            Some(known) if self.random.chance(60) => known,
            _ => self.new_condition(),
        }
    }

    fn compute(&mut self) -> Act {
        let rule = self.rules[self.random.below(self.rules.len())];
        let second = |it: &mut Self| match it.random.chance(30) {
            true => Value::Constant(it.constant()),
            false => it.value(),
        };
        let from = [self.value(), second(self), second(self)];
        let guard = self.random.chance(12).then(|| self.condition());
        Act::Compute { row: rule.name.to_owned(), to: self.register(), from, guard }
    }
}
