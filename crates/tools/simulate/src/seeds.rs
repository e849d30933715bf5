//! Runs many seeds, each in a process of its own.

use std::ops::Range;
use std::process::{Command, ExitCode};
use std::time::Instant;

use penstock_trial::Defect;

/// How one process went.
struct Ended {
    said: String,
    is_good: bool,
}

/// Runs all seeds of the range. Prints those with a finding, and how long it took.
pub fn run(seeds: Range<u64>, twice: bool) -> ExitCode {
    let (began, count) = (Instant::now(), seeds.end.saturating_sub(seeds.start));
    let mut findings = 0_u64;
    for seed in seeds {
        let mut ended = run_one(seed, None);
        if twice && ended.is_good {
            let again = run_one(seed, None);
            if again.said != ended.said {
                let said = format!("the second run differs:\n{}{}", ended.said, again.said);
                ended = Ended { said, is_good: false };
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
    if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Defects that some of the first 500 seeds find. The others need calls or orders that the programs
/// do not have, such as maps, images, rectangles, reads of many pieces, and host memory.
const FOUND: [Defect; 10] = [
    Defect::EarlyEnd,
    Defect::LostWait,
    Defect::OldRegion,
    Defect::ArrivedEarly,
    Defect::LaunchLost,
    Defect::RingOrder,
    Defect::UserEventFailure,
    Defect::PumpOne,
    Defect::CopySwap,
    Defect::CreationBytes,
];

/// Plants each defect of `FOUND` in turn, and runs seeds of the range until one finds it. Fails if
/// none does.
pub fn plant(seeds: Range<u64>) -> ExitCode {
    let mut all_found = true;
    for defect in FOUND {
        let found = seeds.clone().find(|seed| !run_one(*seed, Some(defect)).is_good);
        all_found &= found.is_some();
        let seed = found.map_or_else(|| "-".to_owned(), |seed| seed.to_string());
        println!("{:<20} {seed:>6}  {}", defect.name(), defect.about());
    }
    if all_found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_one(seed: u64, defect: Option<Defect>) -> Ended {
    let run = |program| {
        let mut command = Command::new(program);
        command.arg(seed.to_string()).env("PENSTOCK_TEST_PLANT", defect.map_or("", Defect::name));
        command.output()
    };
    match std::env::current_exe().and_then(run) {
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            Ended { said, is_good: output.status.success() }
        }
        Err(why) => Ended { said: why.to_string(), is_good: false },
    }
}
