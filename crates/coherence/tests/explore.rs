//! Random small programs against the machine, and against machines that lack a rule.

#[cfg(feature = "planted")]
use penstock_coherence::Rule;
use penstock_coherence::explore;

/// Programs of one test run; `penstock check` runs more.
const PROGRAMS: u64 = 30_000;

#[test]
fn random_programs_give_what_a_sequential_run_gives() {
    let report = explore::run(1, PROGRAMS, None, &mut |_| true);
    if let Some(finding) = &report.finding {
        panic!("{finding}");
    }
    assert_eq!(report.programs, PROGRAMS);
    // What is meant to be tried was tried.
    assert!(report.with_held > PROGRAMS / 20, "{report:?}");
    assert!(report.transfers > PROGRAMS, "{report:?}");
    assert!(report.in_place > PROGRAMS / 20, "{report:?}");
}

#[cfg(feature = "planted")]
#[test]
fn every_planted_defect_is_found() {
    const PROGRAMS_MAX: u64 = 200_000;
    let mut missed = Vec::new();
    for rule in Rule::ALL {
        let report = explore::run(1, PROGRAMS_MAX, Some(*rule), &mut |_| true);
        match report.finding {
            Some(finding) => {
                println!("{rule:?}: program {}, {} operations", report.programs, finding.program.ops.len());
            }
            None => missed.push(*rule),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
