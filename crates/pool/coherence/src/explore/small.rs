//! Enumerates all small programs, and all orders of their steps up to a bound.
//!
//! A program grows by one operation of a small alphabet at a time, as long as it has one result.
//! Its runs are the paths through the choices of the world. The first run always takes the first
//! choice. Each further run takes another choice at one more point, up to a maximal number of such
//! turns.

use super::chooser::{Chooser, Script};
use super::outcome::Planned;
use super::program::{Act, Command, Fault, Op, PlannedAllocation, Program, Span};
use super::{Finding, Report, run_once};
use crate::{Access, Rule};

/// The bounds of the enumeration.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Number of operations of a program.
    pub ops: usize,
    /// Number of points of a run at which a step other than the first possible one is taken.
    pub turns: usize,
}

/// Runs all programs within the bounds until the first finding. `go_on` is asked before each
/// program. The seed of a finding is the number of its program, and its order is that of the run.
pub fn run_all(bounds: Bounds, off: Option<Rule>, go_on: &mut dyn FnMut(u64) -> bool) -> Report {
    let mut all = All { bounds, off, go_on, report: Report::default() };
    for setting in settings() {
        if !all.grow(&setting) {
            break;
        }
    }
    all.report
}

struct All<'a> {
    bounds: Bounds,
    off: Option<Rule>,
    go_on: &'a mut dyn FnMut(u64) -> bool,
    report: Report,
}

impl All<'_> {
    /// Runs all programs that begin with this one. Returns `false` if the enumeration must stop.
    fn grow(&mut self, program: &Program) -> bool {
        if program.first_unset().is_none() && !program.ops.is_empty() && !self.run(program) {
            return false;
        }
        if program.ops.len() == self.bounds.ops {
            return true;
        }
        // Threads are interchangeable, so a program first uses thread 0.
        let threads =
            program.ops.iter().map(|(thread, _)| thread + 1).max().unwrap_or(0).min(1) + 1;
        for op in alphabet(program) {
            for thread in 0..threads {
                let mut longer = program.clone();
                longer.ops.push((thread, op.clone()));
                if longer.is_valid() && !self.grow(&longer) {
                    return false;
                }
            }
        }
        true
    }

    fn run(&mut self, program: &Program) -> bool {
        if !(self.go_on)(self.report.programs) {
            return false;
        }
        let Some(planned) = Planned::of(program) else { return true };
        let seed = self.report.programs;
        self.report.programs += 1;
        self.report.ops += program.ops.len() as u64;
        let mut script = Some(Script::default());
        let mut order = 0;
        while let Some(path) = script.take() {
            let mut chooser = Chooser::Script(path);
            let ended = run_once(
                (program, &planned),
                &mut chooser,
                super::machine(self.off),
                &mut self.report,
            );
            self.report.runs += 1;
            if let Err(what) = ended {
                self.report.finding = Some(Finding { seed, order, program: program.clone(), what });
                return false;
            }
            order += 1;
            if let Chooser::Script(path) = chooser {
                script = path.next(self.bounds.turns);
            }
        }
        true
    }
}

/// Returns programs without operations: the places, queues, allocations and faults on which all
/// programs are based.
fn settings() -> Vec<Program> {
    let setting = |nodes: &[u32], queues: &[(usize, bool)], is_indivisible, fault| Program {
        nodes: nodes.to_vec(),
        queues: queues.to_vec(),
        allocations: vec![PlannedAllocation { cells: 2, is_indivisible, has_initial: false }],
        ops: Vec::new(),
        fault,
    };
    let two = [(0, true), (1, true)];
    vec![
        setting(&[0], &[(0, true), (0, true)], false, None),
        setting(&[0], &[(0, true), (0, false)], true, None),
        setting(&[0, 1], &two, false, None),
        setting(&[0, 1], &[(0, false), (1, true)], false, None),
        setting(&[0, 1], &two, false, Some(Fault::Transfer(0))),
        setting(&[0, 1], &two, false, Some(Fault::Node(1))),
        setting(&[0, 1], &two, false, Some(Fault::NoMemory(1))),
    ]
}

/// Returns the operations with which a program can continue.
fn alphabet(program: &Program) -> Vec<Op> {
    let last = |wanted: fn(&Op) -> bool| {
        (0..program.ops.len()).rev().find(|at| wanted(&program.ops[*at].1))
    };
    let mut ops = vec![Op::Event, Op::Store(0)];
    let event = (0..program.ops.len()).find(|at| {
        let is_set = |(_, op): &(usize, Op)| matches!(op, Op::Set(of, _) if of == at);
        matches!(program.ops[*at].1, Op::Event) && !program.ops.iter().any(is_set)
    });
    ops.extend(event.into_iter().flat_map(|of| [Op::Set(of, true), Op::Set(of, false)]));
    ops.extend(last(|op| op.command().is_some()).map(Op::Wait));
    let wait = last(|op| matches!(op, Op::Enqueue(_) | Op::Event));
    let wait_lists = [None, wait].into_iter().take(1 + usize::from(wait.is_some()));
    for waits in wait_lists {
        for queue in 0..program.queues.len() {
            for command in commands(program) {
                let waits = waits.into_iter().collect();
                ops.push(Op::Enqueue(Command { queue, waits, ..command }));
            }
        }
    }
    ops
}

/// Returns one command for each effect that commands may have, in the first queue and without a
/// wait list.
fn commands(program: &Program) -> Vec<Command> {
    let command = |act, is_blocking, is_refused| Command {
        queue: 0,
        waits: Vec::new(),
        act,
        is_blocking,
        is_refused,
    };
    let cell = |at| Span { of: 0, at, count: 1 };
    let all = Span { of: 0, at: 0, count: 2 };
    let has_places = program.nodes.len() > 1;
    let mut commands = vec![
        command(Act::Kernel(vec![(cell(0), Access::Write)]), false, false),
        command(Act::Kernel(vec![(all, Access::Read)]), false, false),
        command(Act::Write(cell(1), 0, 1), true, false),
        command(Act::Write(all, 0, 1), false, false),
        command(Act::Read(cell(0), 0, 1), false, false),
        command(Act::Read(all, 0, 1), true, false),
        command(Act::Barrier, false, false),
        command(Act::Run(0), false, false),
    ];
    if has_places {
        commands.push(command(Act::Write(all, 0, 1), false, true));
    } else {
        commands.push(command(Act::Kernel(vec![(all, Access::Write)]), false, true));
    }
    commands
}
