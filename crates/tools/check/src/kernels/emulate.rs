//! Runs a kernel thread by thread, as the PTX ISA manual (8.5) describes it.
//!
//! All threads of a block execute one statement after the other, those on which it depends. The
//! emulator refuses a kernel whose result depends on more than that: on the order of threads that
//! nothing orders, on lanes that are not there, on barriers that only some threads reach.

mod warp;

pub use warp::parts;

use super::program::{
    Act, Atomic, Compare, Condition, Fold, LANES, Launch, Meeting, Node, OWN, Place, Program,
    REGISTERS, STRIDE, SUMS, THREADS_MAX, Value, WORDS, Width, content,
};
use super::races::{Races, Use};
use super::rules;

/// Most statements that the threads of a launch execute.
const STEPS_MAX: usize = 400_000;
/// What the memory for last registers has before the launch.
pub const UNTOLD: u32 = 0xa5a5_a5a5;

/// Why a kernel has no determined result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Brackets are not in order, or a statement is not one.
    Form,
    /// Threads use a word of shared memory in no order, or nobody has written it.
    Race,
    /// Only some threads of the block reach a barrier.
    Barrier,
    /// Lanes of a mask are not there.
    Mask,
    /// The kernel executes too many statements.
    Long,
}

/// Some threads of a block.
type Set = u128;

/// Returns the memory before a launch.
pub fn before(program: &Program, launch: &Launch) -> Vec<u32> {
    let mut memory = content(program.words(launch), launch.seed);
    for thread in memory[SUMS..].chunks_mut(STRIDE) {
        thread[REGISTERS + OWN..].fill(UNTOLD);
    }
    memory
}

/// Returns the memory after a launch.
///
/// # Errors
///
/// The result is not determined.
pub fn after(program: &Program, launch: &Launch) -> Result<Vec<u32>, Refusal> {
    let tree = program.tree().ok_or(Refusal::Form)?;
    let mut memory = before(program, launch);
    let mut steps = 0;
    for index in 0..launch.blocks {
        let threads = program.block.clamp(1, THREADS_MAX);
        let mut block = Block {
            index,
            launch,
            first: SUMS + index * threads * STRIDE,
            memory: &mut memory,
            threads: vec![Thread::default(); threads],
            alive: Set::MAX >> (THREADS_MAX - threads),
            shared: vec![0; WORDS],
            races: Races::new(threads),
            steps: &mut steps,
        };
        block.run(&tree)?;
    }
    Ok(memory)
}

#[derive(Clone, Debug, Default)]
struct Thread {
    registers: [u32; REGISTERS],
    /// The turns of loops, by their numbers.
    turns: Vec<(usize, u32)>,
}

struct Block<'a> {
    index: usize,
    launch: &'a Launch,
    /// The first word of memory of the block's first thread.
    first: usize,
    memory: &'a mut Vec<u32>,
    threads: Vec<Thread>,
    alive: Set,
    shared: Vec<u32>,
    races: Races,
    steps: &'a mut usize,
}

/// What threads know where they are.
#[derive(Clone, Copy)]
struct Here {
    active: Set,
    /// The threads that the masks of the warps name here.
    known: Option<Set>,
}

/// Threads that have left a turn of a loop, or the loop.
#[derive(Default)]
struct Ways {
    turned: Set,
    left: Set,
}

fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..THREADS_MAX).filter(move |thread| set >> thread & 1 == 1)
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

impl Block<'_> {
    fn run(&mut self, tree: &[Node<'_>]) -> Result<(), Refusal> {
        for (thread, own) in self.threads.iter_mut().enumerate() {
            let start = self.first + thread * STRIDE;
            own.registers.copy_from_slice(&self.memory[start..start + REGISTERS]);
        }
        let here = Here { active: self.alive, known: Some(self.alive) };
        let last = self.body(tree, here, &mut Ways::default())?;
        self.tell(last);
        Ok(())
    }

    /// Writes the registers of threads that end.
    fn tell(&mut self, set: Set) {
        for thread in members(set) {
            let start = self.first + thread * STRIDE + REGISTERS + OWN;
            let registers = self.threads[thread].registers;
            self.memory[start..start + REGISTERS].copy_from_slice(&registers);
        }
    }

    fn value(&self, thread: usize, value: Value) -> u32 {
        let own = &self.threads[thread];
        match value {
            Value::Register(at) => own.registers[usize::from(at) % REGISTERS],
            Value::Constant(it) => it,
            Value::Thread => number(thread),
            Value::Lane => number(thread % LANES),
            Value::Block => number(self.index),
            Value::Parameter => self.launch.parameter,
            Value::Turn(id) => own.turns.iter().find(|it| it.0 == id).map_or(0, |it| it.1),
        }
    }

    fn register(&mut self, thread: usize, at: u8) -> &mut u32 {
        &mut self.threads[thread].registers[usize::from(at) % REGISTERS]
    }

    fn turn(&mut self, thread: usize, id: usize) -> &mut u32 {
        let turns = &mut self.threads[thread].turns;
        let at = turns.iter().position(|it| it.0 == id).unwrap_or_else(|| {
            turns.push((id, 0));
            turns.len() - 1
        });
        &mut turns[at].1
    }

    fn holds(&self, thread: usize, condition: &Condition) -> bool {
        let one = self.value(thread, condition.value) & condition.bits;
        let other = self.value(thread, condition.with);
        match condition.compare {
            Compare::Eq => one == other,
            Compare::Ne => one != other,
            Compare::Lt => one < other,
            Compare::Ge => one >= other,
            Compare::LtSigned => one.cast_signed() < other.cast_signed(),
            Compare::GeSigned => one.cast_signed() >= other.cast_signed(),
        }
    }

    fn those(&self, set: Set, condition: &Condition) -> Set {
        members(set)
            .filter(|thread| self.holds(*thread, condition))
            .fold(0, |all, thread| all | 1 << thread)
    }

    /// Returns the threads that are still active behind the statements.
    fn body(
        &mut self,
        nodes: &[Node<'_>],
        mut here: Here,
        ways: &mut Ways,
    ) -> Result<Set, Refusal> {
        for node in nodes {
            if here.active == 0 {
                break;
            }
            *self.steps += here.active.count_ones() as usize;
            if *self.steps > STEPS_MAX {
                return Err(Refusal::Long);
            }
            here.active = self.statement(node, here, ways)?;
        }
        Ok(here.active)
    }

    fn statement(&mut self, node: &Node<'_>, here: Here, ways: &mut Ways) -> Result<Set, Refusal> {
        let active = here.active;
        match node.act {
            Act::If { condition, votes, .. } => {
                let yes = self.those(active, condition);
                let no = active & !yes;
                let (known, unknown) = if *votes {
                    self.all_here(here)?;
                    // The other side has what the mask around has and the ballot has not.
                    (Some(yes), here.known.map(|known| known & !yes))
                } else {
                    (None, None)
                };
                let one = self.body(&node.body, Here { active: yes, known }, ways)?;
                let other = self.body(&node.other, Here { active: no, known: unknown }, ways)?;
                return Ok(one | other);
            }
            Act::Loop { .. } => return self.turns(node, here),
            Act::Break { condition } => {
                let yes = self.those(active, condition);
                ways.left |= yes;
                return Ok(active & !yes);
            }
            Act::Continue { condition } => {
                let yes = self.those(active, condition);
                ways.turned |= yes;
                return Ok(active & !yes);
            }
            Act::Exit { condition, tells } => {
                let yes = self.those(active, condition);
                if *tells {
                    self.tell(yes);
                }
                // "As threads exit, barriers waiting on all threads are checked to see if the
                // exiting threads are the only threads that have not yet made it to a barrier. If
                // the exiting threads are holding up the barrier, the barrier is released."
                self.alive &= !yes;
                return Ok(active & !yes);
            }
            Act::Exchange { to, what, mask } => self.exchange(here, *to, what, *mask)?,
            Act::MeetWarp { mask } => {
                for group in self.groups(here, *mask)? {
                    self.races.meet(&group);
                }
            }
            act => self.simple(act, active)?,
        }
        Ok(active)
    }

    fn turns(&mut self, node: &Node<'_>, around: Here) -> Result<Set, Refusal> {
        let Act::Loop { id, turns, at_head, votes } = node.act else { return Err(Refusal::Form) };
        let mut here = Here { known: around.known.filter(|_| *votes), ..around };
        let mut ways = Ways::default();
        let wanted: Vec<u32> =
            (0..self.threads.len()).map(|thread| self.value(thread, *turns) & 3).collect();
        members(here.active).for_each(|thread| *self.turn(thread, *id) = 0);
        let mut is_first = true;
        loop {
            if *at_head || !is_first {
                let more = |it: &Self, thread: &usize| {
                    it.value(*thread, Value::Turn(*id)) < wanted[*thread]
                };
                let stay = members(here.active).filter(|thread| more(self, thread));
                let stay = stay.fold(0, |all, thread| all | 1 << thread);
                if *votes {
                    self.all_here(here)?;
                    here.known = Some(stay);
                }
                ways.left |= here.active & !stay;
                here.active = stay;
            }
            is_first = false;
            if here.active == 0 {
                return Ok(ways.left);
            }
            ways.turned = 0;
            here.active = self.body(&node.body, here, &mut ways)? | ways.turned;
            members(here.active).for_each(|thread| *self.turn(thread, *id) += 1);
        }
    }

    /// Performs what a statement without branches does.
    fn simple(&mut self, act: &Act, active: Set) -> Result<(), Refusal> {
        match act {
            Act::Compute { row, to, from, guard } => {
                let rule = rules::rule(row).ok_or(Refusal::Form)?;
                let set = guard.as_ref().map_or(active, |guard| self.those(active, guard));
                for thread in members(set) {
                    let [a, b, c] = from.map(|value| self.value(thread, value));
                    *self.register(thread, *to) = (rule.compute)(a, b, c);
                }
            }
            Act::Barrier { guard } => {
                let set = guard.as_ref().map_or(active, |guard| self.those(active, guard));
                if set != 0 {
                    self.barrier(set)?;
                }
            }
            Act::Meet { how, to, condition } => {
                self.barrier(active)?;
                // "barrier.red performs a reduction of the predicate across threads."
                let yes = self.those(active, condition);
                let result = match how {
                    Meeting::And => u32::from(yes == active),
                    Meeting::Or => u32::from(yes != 0),
                    Meeting::Count => yes.count_ones(),
                };
                members(active).for_each(|thread| *self.register(thread, *to) = result);
            }
            act => self.access(act, active)?,
        }
        Ok(())
    }

    /// Performs what a statement does with memory.
    fn access(&mut self, act: &Act, active: Set) -> Result<(), Refusal> {
        match act {
            Act::Store { at, from, width } => {
                for thread in members(active) {
                    let word = self.word(thread, *at);
                    self.used(thread, word, Use::Write)?;
                    let value = self.value(thread, Value::Register(*from));
                    put(&mut self.shared[word], value, *width);
                }
            }
            Act::Load { to, at, width } => {
                for thread in members(active) {
                    let word = self.word(thread, *at);
                    self.used(thread, word, Use::Read)?;
                    *self.register(thread, *to) = got(self.shared[word], *width);
                }
            }
            Act::Reduce { how, from } => {
                for thread in members(active) {
                    let word = *how as usize;
                    self.used(thread, word, Use::Change(*how))?;
                    let value = self.value(thread, Value::Register(*from));
                    self.shared[word] = folded(*how, self.shared[word], value);
                }
            }
            Act::ReduceAll { how, from } => {
                for thread in members(active) {
                    let value = self.value(thread, Value::Register(*from));
                    let word = &mut self.memory[*how as usize];
                    *word = folded(*how, *word, value);
                }
            }
            Act::StoreOwn { at, from, width } => {
                for thread in members(active) {
                    let value = self.value(thread, Value::Register(*from));
                    put(self.own(thread, *at), value, *width);
                }
            }
            Act::LoadOwn { to, at, width } => {
                for thread in members(active) {
                    *self.register(thread, *to) = got(*self.own(thread, *at), *width);
                }
            }
            Act::AtomicOwn { how, to, at, from } => {
                for thread in members(active) {
                    let [a, b] = from.map(|from| self.value(thread, Value::Register(from)));
                    let old = *self.own(thread, *at);
                    *self.own(thread, *at) = changed(*how, old, a, b);
                    *self.register(thread, *to) = old;
                }
            }
            _ => return Err(Refusal::Form),
        }
        Ok(())
    }

    /// "barrier.sync causes the executing thread to wait for all non-exited threads" of the block;
    /// the aligned form demands "that all threads in the warp execute the same instruction".
    fn barrier(&mut self, set: Set) -> Result<(), Refusal> {
        if set != self.alive {
            return Err(Refusal::Barrier);
        }
        let threads: Vec<usize> = members(set).collect();
        self.races.meet(&threads);
        Ok(())
    }

    fn used(&mut self, thread: usize, word: usize, how: Use) -> Result<(), Refusal> {
        if self.races.is_ordered(thread, word, how) { Ok(()) } else { Err(Refusal::Race) }
    }

    fn own(&mut self, thread: usize, at: usize) -> &mut u32 {
        &mut self.memory[self.first + thread * STRIDE + REGISTERS + at % OWN]
    }

    fn word(&self, thread: usize, place: Place) -> usize {
        let index = match place {
            Place::Thread(bits) => number(thread) ^ bits,
            Place::Times(times) => number(thread).wrapping_mul(times),
            Place::Fixed(index) => index,
            Place::Told(register) => self.value(thread, Value::Register(register)),
        };
        index as usize % WORDS
    }
}

/// "ld: the value is sign-extended for signed integer types, and zero-extended for unsigned ones."
fn got(word: u32, width: Width) -> u32 {
    let [byte, other, ..] = word.to_le_bytes();
    let half = u16::from_le_bytes([byte, other]);
    match width {
        Width::Byte => u32::from(byte),
        Width::ByteSigned => i32::from(byte.cast_signed()).cast_unsigned(),
        Width::Half => u32::from(half),
        Width::HalfSigned => i32::from(half.cast_signed()).cast_unsigned(),
        Width::Word => word,
    }
}

/// "st: the lower n bits are stored."
fn put(word: &mut u32, value: u32, width: Width) {
    let bits = match width {
        Width::Byte | Width::ByteSigned => 0xff,
        Width::Half | Width::HalfSigned => 0xffff,
        Width::Word => u32::MAX,
    };
    *word = *word & !bits | value & bits;
}

fn folded(how: Fold, one: u32, other: u32) -> u32 {
    match how {
        Fold::Add => one.wrapping_add(other),
        Fold::MinSigned => one.cast_signed().min(other.cast_signed()).cast_unsigned(),
        Fold::MaxUnsigned => one.max(other),
        Fold::And => one & other,
        Fold::Or => one | other,
        Fold::Xor => one ^ other,
    }
}

/// "inc: `d = (r >= s) ? 0 : r+1`; dec: `d = (r==0 || r > s) ? s : r-1`; cas: `(r == s) ? t : r`."
fn changed(how: Atomic, old: u32, a: u32, b: u32) -> u32 {
    match how {
        Atomic::Fold(how) => folded(how, old, a),
        Atomic::Exchange => a,
        Atomic::Swap => {
            if old == a {
                b
            } else {
                old
            }
        }
        Atomic::Increment => {
            if old >= a {
                0
            } else {
                old + 1
            }
        }
        Atomic::Decrement => {
            if old == 0 || old > a {
                a
            } else {
                old - 1
            }
        }
    }
}
