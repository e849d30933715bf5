//! Runs many seeds, each in a process of its own.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::process::{Command, ExitCode};
use std::time::Instant;
use std::{fmt, io};

use penstock_trial::Defect;

use crate::plan::Plan;

/// How one process went.
struct Ended {
    said: String,
    is_good: bool,
    /// Whether the process says that its world has a finding.
    has_finding: bool,
}

/// Programs that ran commands, of all.
#[derive(Default)]
struct Share {
    ran: usize,
    all: usize,
}

impl Share {
    fn add(&mut self, ran: usize, all: usize) {
        self.ran += ran;
        self.all += all;
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} ({} %)", self.ran, self.all, 100 * self.ran / self.all.max(1))
    }
}

impl Ended {
    /// Returns how many programs ran commands, as the process says.
    fn begun(&self) -> usize {
        let said = self.said.lines().find_map(|line| line.rsplit_once(BEGUN));
        said.and_then(|(_, count)| count.parse().ok()).unwrap_or(0)
    }

    /// Returns whether the world ran to its end and has a finding.
    fn is_finding(&self) -> bool {
        self.has_finding && self.said.lines().any(|line| line.starts_with("finding: "))
    }
}

/// What a process says before the number of programs that had their objects and ran commands.
pub const BEGUN: &str = "begun ";
/// Exit status of a process whose world has a finding.
pub const FINDING: i32 = 1;
/// Exit status of a process whose world came to no end: a panic, or a wait outside of the world.
pub const BROKEN: i32 = 3;

/// Runs all seeds of the range. Prints those with a finding, and how long it took.
///
/// # Errors
/// The process of a world cannot start, which says nothing about the product.
pub fn run(seeds: Range<u64>, twice: bool) -> io::Result<ExitCode> {
    let (began, count) = (Instant::now(), seeds.end.saturating_sub(seeds.start));
    let (mut findings, mut all, mut faulty) = (0_u64, Share::default(), Share::default());
    for seed in seeds {
        let mut ended = run_one(seed, None)?;
        let plan = Plan::of(seed);
        let begun = ended.begun();
        all.add(begun, plan.threads);
        if (0..plan.nodes).any(|node| plan.fault.is_at(node)) {
            faulty.add(begun, plan.threads);
        }
        if twice && ended.is_good {
            let again = run_one(seed, None)?;
            if again.said != ended.said {
                let said = format!("the second run differs:\n{}{}", ended.said, again.said);
                ended = Ended { said, is_good: false, has_finding: false };
            }
        }
        if !ended.is_good {
            findings += 1;
            println!("FINDING with seed {seed}:\n{}", ended.said);
        }
    }
    let took = began.elapsed();
    let rate = count as f64 / took.as_secs_f64().max(1e-9) * 60.0;
    println!("{count} seeds, {findings} findings, {took:.1?}, {rate:.0} seeds a minute");
    println!("programs that ran commands: {all}; of those with a faulty node: {faulty}");
    Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Defects that the programs do not find, and why.
const NOT_FOUND: [Defect; 12] = [
    // The programs call the client's crate, not the OpenCL driver.
    Defect::UnmapPage,
    Defect::HostPitch,
    // They have no maps, images, writes from memory that the client knows, or arenas.
    Defect::MapChain,
    Defect::ViewOverwrite,
    Defect::DeviceChain,
    Defect::HeldFirst,
    Defect::TornRead,
    // The simulated device calls back in order, and has no kernel with a pointer to const.
    Defect::EndsOvertake,
    Defect::TrustConst,
    // Workers hear of the releases of events in groups of more than a program has.
    Defect::ReleaseEnds,
    // The programs have the calls for these. It is not known why no seed of the lane finds them.
    Defect::NewQueue,
    Defect::LateArgs,
];

/// Defects that one seed of some thousands finds, and another one in each version of the code.
const RARE: [Defect; 2] = [Defect::FinishEarly, Defect::LostBefore];

/// Plants all other defects in turn, and runs seeds of the range until one finds it. Fails if none
/// does, unless the defect is rare.
///
/// A seed finds a defect if it passes without the defect and has a finding with it. A process that
/// crashes, or waits outside of its world, has found nothing.
///
/// # Errors
/// The process of a world cannot start.
pub fn plant(seeds: Range<u64>) -> io::Result<ExitCode> {
    let mut passes = BTreeMap::new();
    let mut all_found = true;
    let others = Defect::ALL.iter().filter(|it| !NOT_FOUND.contains(it));
    for defect in others.copied() {
        let mut found = None;
        for seed in seeds.clone() {
            if let Entry::Vacant(place) = passes.entry(seed) {
                place.insert(run_one(seed, None)?.is_good);
            }
            if passes[&seed] && run_one(seed, Some(defect))?.is_finding() {
                found = Some(seed);
                break;
            }
        }
        all_found &= found.is_some() || RARE.contains(&defect);
        let seed = found.map_or_else(|| "-".to_owned(), |seed| seed.to_string());
        println!("{:<20} {seed:>6}  {}", defect.name(), defect.about());
    }
    Ok(if all_found { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_one(seed: u64, defect: Option<Defect>) -> io::Result<Ended> {
    let mut command = Command::new(std::env::current_exe()?);
    // What the caller has set must not change what a seed does.
    penstock_trial::isolate(&mut command);
    command.arg(seed.to_string()).env("PENSTOCK_TEST_PLANT", defect.map_or("", Defect::name));
    let output = command.output()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    let code = output.status.code();
    Ok(Ended { said, is_good: code == Some(0), has_finding: code == Some(FINDING) })
}
