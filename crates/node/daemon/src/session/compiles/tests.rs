//! A driver in a few lines: threads that take commands from a line, and compile kernels first.

use penstock_cl_sys::CL_RUNNING;
use proptest::prelude::*;

use super::*;

const LINE: Line = Line { part: 0, whole: 0 };
const TICK: Duration = Duration::from_millis(250);

/// A command of the simulated driver, and how many ticks each of its phases takes.
#[derive(Clone, Debug)]
struct Command {
    /// When it joins the line.
    ready: u32,
    compiles: u32,
    runs: u32,
}

struct Driver {
    threads: usize,
    now: u32,
    commands: Vec<(Command, Status, Turn)>,
    /// The commands in the line, and those that threads work on.
    waiting: Vec<usize>,
    taken: Vec<usize>,
}

impl Driver {
    fn new(threads: usize, commands: &[Command]) -> Self {
        let given = |it: &Command| (it.clone(), Status(CL_QUEUED), Turn::new(LINE, true, 0));
        let commands = commands.iter().map(given).collect();
        Self { threads, now: 0, commands, waiting: Vec::new(), taken: Vec::new() }
    }

    /// Works for one tick, and looks.
    fn step(&mut self, builds: usize) {
        for (index, (command, status, _)) in self.commands.iter_mut().enumerate() {
            if *status == Status(CL_QUEUED) && command.ready <= self.now {
                *status = Status(CL_SUBMITTED);
                self.waiting.push(index);
            }
        }
        while self.taken.len() < self.threads && !self.waiting.is_empty() {
            self.taken.push(self.waiting.remove(0));
        }
        let commands = &mut self.commands;
        self.taken.retain(|index| {
            let (command, status, _) = &mut commands[*index];
            if command.compiles > 0 {
                command.compiles -= 1;
                return true;
            }
            *status = if command.runs == 0 { Status::OK } else { Status(CL_RUNNING) };
            command.runs = command.runs.saturating_sub(1);
            status.0 > 0
        });
        let (began, ended) = (u64::from(self.now), u64::from(self.now) + 1);
        self.now += 1;
        let mut turns: Vec<_> = self
            .commands
            .iter_mut()
            .filter(|(_, status, turn)| status.0 > 0 || turn.by != Some(u64::MAX))
            .map(|(_, status, turn)| (*status, turn))
            .collect();
        look(Look { began, ended, passed: TICK, builds }, &mut turns);
        // A command that has ended is seen once more.
        for (_, status, turn) in &mut self.commands {
            if status.0 <= 0 {
                turn.by = Some(u64::MAX);
            }
        }
    }

    fn run(&mut self, ticks: u32) {
        (0..ticks).for_each(|_| self.step(0));
    }

    fn spent(&self, index: usize) -> u32 {
        u32::try_from(self.commands[index].2.spent.as_millis() / TICK.as_millis()).unwrap()
    }
}

fn command(ready: u32, compiles: u32, runs: u32) -> Command {
    Command { ready, compiles, runs }
}

#[test]
fn a_compilation_without_end_is_seen() {
    let mut driver = Driver::new(2, &[command(0, u32::MAX, 0)]);
    driver.run(100);
    assert_eq!(driver.spent(0), 99);
}

#[test]
fn one_on_each_thread_is_seen() {
    let mut driver = Driver::new(2, &[command(0, u32::MAX, 0), command(0, u32::MAX, 0)]);
    driver.run(101);
    assert_eq!((driver.spent(0), driver.spent(1)), (100, 100));
}

#[test]
fn short_kernels_beside_it_hide_nothing() {
    let short = (1..100).map(|ready| command(3 * ready, 0, 1));
    let commands: Vec<_> = [command(0, u32::MAX, 0)].into_iter().chain(short).collect();
    let mut driver = Driver::new(2, &commands);
    driver.run(300);
    assert!(driver.spent(0) > 280, "{}", driver.spent(0));
    // Nor do launches that wait for the other thread, many at a time.
    let many = (5..400).map(|ready| command(ready, 0, 9));
    let commands: Vec<_> = [command(0, u32::MAX, 0)].into_iter().chain(many).collect();
    let mut driver = Driver::new(2, &commands);
    driver.run(400);
    assert!(driver.spent(0) > 90, "{}", driver.spent(0));
}

#[test]
fn who_waits_behind_a_kernel_is_not_compiled() {
    let mut driver = Driver::new(1, &[command(0, 0, 5_000), command(1, 3, 1), command(9, 3, 1)]);
    driver.run(4_000);
    assert_eq!((driver.spent(1), driver.spent(2)), (0, 0));
}

#[test]
fn kernels_that_run_one_after_the_other_are_not_compiled() {
    let commands: Vec<_> = (0..1_000).map(|_| command(0, 1, 1)).collect();
    let mut driver = Driver::new(2, &commands);
    driver.run(1_000);
    assert!((0..1_000).all(|index| driver.spent(index) <= 2));
}

#[test]
fn who_waits_for_an_event_is_not_compiled() {
    let mut driver = Driver::new(2, &[command(2_000, 1, 1)]);
    driver.run(2_000);
    assert_eq!(driver.spent(0), 0);
}

#[test]
fn builds_have_their_part_of_the_time() {
    let mut driver = Driver::new(2, &[command(0, u32::MAX, 0)]);
    (0..101).for_each(|_| driver.step(3));
    assert_eq!(driver.spent(0), 25);
}

#[test]
fn at_a_limit_the_reason_names_kernel_limit_and_remedy() {
    let limits = BuildLimits { seconds_max: 5, bytes_max: 300 << 20 };
    let taken = Taken { longest: Duration::from_secs(5), grown: 600 << 20, kernels: 2, builds: 0 };
    assert_eq!(excess(&limits, &taken, "k"), None);
    let late = Taken { longest: Duration::from_millis(5_001), ..taken };
    let large = Taken { kernels: 1, ..taken };
    for (taken, words) in [
        (late, ["longer than 5 s", "raise PENSTOCK_BUILD_SECONDS"]),
        (large, ["600 MiB for it, and may take 300 MiB", "raise PENSTOCK_BUILD_MIB"]),
    ] {
        let why = excess(&limits, &taken, "k").unwrap();
        assert!(words.iter().chain(&["the kernel k "]).all(|word| why.contains(word)), "{why}");
    }
}

proptest! {
    /// No launch counts for longer than a kernel is compiled, whatever the others do.
    #[test]
    fn waiting_is_not_charged(
        threads in 1..4_usize,
        commands in prop::collection::vec((0..200_u32, 0..20_u32, 0..200_u32), 1..40),
    ) {
        let commands = commands.iter().map(|(ready, compiles, runs)| (*ready, *compiles, *runs));
        let commands: Vec<_> = commands.map(|(a, b, c)| command(a, b, c)).collect();
        let mut driver = Driver::new(threads, &commands);
        driver.run(2_000);
        // Who waits while all threads compile counts as long as one of them compiles.
        for (index, command) in commands.iter().enumerate() {
            let spent = driver.spent(index);
            prop_assert!(spent <= 20, "{spent} of {command:?}");
        }
    }
}
