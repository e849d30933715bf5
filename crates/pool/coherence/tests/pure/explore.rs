//! Runs random and enumerated small programs against the machine, and against machines that lack a
//! rule.

#[cfg(feature = "planted")]
use penstock_coherence::Rule;
use penstock_coherence::explore;

/// Number of programs of one test run; `penstock check` runs more.
const PROGRAMS: u64 = if cfg!(debug_assertions) { 5_000 } else { 30_000 };

#[test]
fn random_programs_give_what_a_sequential_run_gives() {
    let report = explore::run(1, PROGRAMS, None, &mut |_| true);
    if let Some(finding) = &report.finding {
        panic!("{finding}");
    }
    assert_eq!(report.programs, PROGRAMS);
    // The runs reached the situations that they are meant to test.
    assert!(report.with_held > PROGRAMS / 20, "{report:?}");
    assert!(report.transfers > PROGRAMS, "{report:?}");
    assert!(report.in_place > PROGRAMS / 20, "{report:?}");
}

#[cfg(feature = "planted")]
#[test]
fn every_planted_defect_is_found() {
    /// This takes some minutes on one core. Most rules need some hundred programs.
    const PROGRAMS_MAX: u64 = 2_000_000;
    let mut missed = Vec::new();
    for rule in Rule::ALL {
        let began = std::time::Instant::now();
        let report = explore::run(1, PROGRAMS_MAX, Some(*rule), &mut |_| true);
        let seconds = began.elapsed().as_secs_f64();
        match report.finding {
            Some(finding) => {
                let ops = finding.program.ops.len();
                println!("| `{rule:?}` | {} | {seconds:.2} | {ops} |", report.programs);
            }
            None => missed.push(*rule),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn all_small_programs_give_what_a_sequential_run_gives() {
    let bounds = explore::Bounds { ops: 2, turns: 2 };
    let report = explore::run_all(bounds, None, &mut |_| true);
    if let Some(finding) = &report.finding {
        panic!("{finding}");
    }
    assert!(report.programs > 5_000 && report.runs > 10 * report.programs, "{report:?}");
}

/// Programs of at most three operations are enough to find the absence of these rules.
#[cfg(feature = "planted")]
#[test]
fn all_small_programs_find_planted_defects() {
    for rule in [Rule::HostReadAfterWrite, Rule::UnsetEventHolds, Rule::LeaveAfterWriters] {
        let bounds = explore::Bounds { ops: 3, turns: 1 };
        let report = explore::run_all(bounds, Some(rule), &mut |_| true);
        assert!(report.finding.is_some(), "{rule:?}: {report:?}");
    }
}
