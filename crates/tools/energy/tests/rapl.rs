//! RAPL on a node made of files: joules are within 1 % of what is injected, also over wraps.
//! Missing, forbidden and dead counters are distinguished.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;
use std::time::Duration;

use common::{Mill, Tree, assert_joules, figure, states};
use penstock_energy::{Meter, Options, Reason};

const MICRO: f64 = 1e-6;
/// Units of perf's counters in a joule.
const PERF_UNITS: u64 = 1 << 32;

/// Converts joules to perf's unit.
fn perf_units(joules: f64) -> u64 {
    // Computed in quarters of a joule, which are exact.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small and positive"
    )]
    let quarters = (joules * 4.0) as u64;
    quarters * (PERF_UNITS / 4)
}

fn joules(units: u128, per_unit: f64) -> f64 {
    units as f64 * per_unit
}

#[test]
fn joules_of_packages_and_memory_are_right_over_many_wraps() {
    let tree = Tree::new();
    let range = 1_000_000;
    let rates = [2_500_000, 1_500_000, 200_000, 1_750_000];
    let zones = [
        tree.zone("intel-rapl:0", "package-0", range),
        tree.zone("intel-rapl:0:0", "core", range),
        tree.zone("intel-rapl:0:1", "dram", range),
        tree.zone("intel-rapl:1", "package-1", range),
    ];
    let mill = Mill::start(zones.into_iter().zip(rates).collect());
    let mut meter = Meter::open(&tree.options());
    let mut dials = mill.stop();
    meter.start().unwrap();
    // Five wraps of the first one, and a reading every 300 ms.
    for _ in 0..7 {
        dials.iter_mut().zip(rates).for_each(|(dial, rate)| dial.add(rate * 3 / 10));
        meter.report_so_far().unwrap();
    }
    meter.stop().unwrap();
    let report = meter.report().unwrap();
    let injected = rates.map(|rate| joules(u128::from(rate) * 21 / 10, MICRO));
    for (index, name) in ["package-0", "cores-0", "dram-0", "package-1"].into_iter().enumerate() {
        assert_joules(figure(&report, "powercap", name).joules, injected[index], name);
    }
    // Cores are part of the package and not added again.
    assert_joules(report.total.joules, injected[0] + injected[2] + injected[3], "total");
    assert_eq!(report.total.covered, ["package-0", "dram-0", "package-1"]);
    // The memory of the second package is missing, which does not count as 0.
    let lacks: Vec<_> = report.total.missing.iter().map(|it| it.component.as_str()).collect();
    assert!(lacks.contains(&"dram-1") && lacks.contains(&"gpu") && lacks.len() == 2, "{lacks:?}");
    assert_eq!(figure(&report, "powercap", "dram-1").joules, None);
}

#[test]
#[ignore = "perf: the thread that reads the counter must run often"]
fn perf_joules_are_right_over_wraps_that_only_the_thread_sees() {
    let tree = Tree::new();
    // 40 J: a wrap every 400 ms at 100 W. For this range, the meter reads the counter every 10 ms.
    let dial = tree.zone("intel-rapl:0", "package-0", 40_000_000);
    let mill = Mill::start(vec![(dial, 100_000_000)]);
    let mut meter = Meter::open(&tree.options());
    let begin = {
        let held = mill.hold();
        meter.start().unwrap();
        held.sum(0)
    };
    thread::sleep(Duration::from_millis(2200));
    let end = {
        let held = mill.hold();
        meter.stop().unwrap();
        held.sum(0)
    };
    let injected = joules(end - begin, MICRO);
    assert!(injected > 5.0 * 40.0, "too few wraps: {injected}");
    assert_joules(meter.report().unwrap().total.joules, injected, "package-0");
}

#[test]
fn joules_are_right_over_a_thousand_wraps() {
    let tree = Tree::new();
    let range = 1_000_000;
    let mill = Mill::start(vec![(tree.zone("intel-rapl:0", "package-0", range), 1_000_000)]);
    let mut meter = Meter::open(&tree.options());
    let mut dial = mill.stop().remove(0);
    meter.start().unwrap();
    let before = dial.sum;
    for step in 0..3000_u64 {
        dial.add(range / 10 * (1 + step % 9));
        meter.report_so_far().unwrap();
    }
    meter.stop().unwrap();
    let report = meter.report().unwrap();
    assert_joules(report.total.joules, joules(dial.sum - before, MICRO), "1500 wraps");
}

#[test]
fn events_of_perf_are_scaled_and_named_as_powercap_names_them() {
    let tree = Tree::new();
    let dials = tree.pmu(&[("energy-pkg", 2), ("energy-ram", 3)], &[0, 4]);
    let rates = [50.0, 30.0, 5.0, 4.0].map(perf_units);
    let mill = Mill::start(dials.into_iter().zip(rates).collect());
    let mut meter = Meter::open(&tree.options());
    let mut dials = mill.stop();
    meter.start().unwrap();
    let added = [12.5, 7.25, 1.5, 0.5];
    for (dial, joules) in dials.iter_mut().zip(added) {
        dial.add(perf_units(joules));
    }
    meter.stop().unwrap();
    let report = meter.report().unwrap();
    for (name, joules) in ["package-0", "package-1", "dram-0", "dram-1"].into_iter().zip(added) {
        assert_joules(figure(&report, "perf", name).joules, joules, name);
    }
    assert_joules(report.total.joules, 21.75, "total");
    assert_eq!(states(&meter.channels()).get("powercap package"), Some(&"absent"));
}

#[test]
fn one_component_from_two_sources_is_counted_once_and_compared() {
    let tree = Tree::new();
    let mut dials = tree.pmu(&[("energy-pkg", 2)], &[0]);
    dials.push(tree.zone("intel-rapl:0", "package-0", 1 << 40));
    let mill = Mill::start(dials.into_iter().map(|dial| (dial, 1 << 30)).collect());
    let mut meter = Meter::open(&tree.options());
    let mut dials = mill.stop();
    meter.start().unwrap();
    dials[1].add(10_000_000);
    dials[0].add(perf_units(12.0));
    meter.stop().unwrap();
    let report = meter.report().unwrap();
    assert_joules(report.total.joules, 10.0, "powercap's");
    let check = &report.checks[0];
    assert!((check.difference - 0.2).abs() < 1e-6, "{check:?}");
    assert!(report.notes.iter().any(|note| note.contains("+20.0 %")), "{:?}", report.notes);
}

#[test]
fn counters_that_never_advance_are_dead_and_not_zero() {
    let tree = Tree::new();
    tree.zone("intel-rapl:0", "package-0", 1 << 40).set(123_456);
    tree.pmu(&[("energy-pkg", 2), ("energy-psys", 5)], &[0]);
    let mut meter = Meter::open(&tree.options());
    let found = states(&meter.channels());
    assert_eq!(found["powercap package-0"], "dead_counter");
    assert_eq!(found["perf package-0"], "dead_counter");
    assert_eq!(found["perf platform"], "not_tried");
    let asked = Meter::open(&Options { psys: true, ..tree.options() });
    assert_eq!(states(&asked.channels())["perf psys"], "dead_counter");
    meter.start().unwrap();
    meter.stop().unwrap();
    let report = meter.report().unwrap();
    assert_eq!((report.total.joules, report.total.covered.len()), (None, 0));
    assert!(report.total.unavailable.unwrap().contains("powercap"));
    let missing = report.total.missing.iter().find(|it| it.component == "package-0").unwrap();
    assert!(
        missing.reasons[0].contains("dead counter") && missing.reasons[0].contains("123456"),
        "{missing:?}"
    );
}

#[test]
fn a_counter_that_stops_in_the_measurement_is_told() {
    let tree = Tree::new();
    let dials = vec![
        (tree.zone("intel-rapl:0", "package-0", 1 << 40), 50_000_000),
        (tree.zone("intel-rapl:0:0", "dram", 1 << 40), 1_000_000),
    ];
    let mill = Mill::start(dials);
    let mut meter = Meter::open(&tree.options());
    let mut dials = mill.stop();
    meter.start().unwrap();
    thread::sleep(Duration::from_millis(250));
    dials[0].add(7_000_000);
    meter.stop().unwrap();
    let report = meter.report().unwrap();
    assert_joules(report.total.joules, 7.0, "package");
    assert!(matches!(
        figure(&report, "powercap", "dram-0").unavailable,
        Some(Reason::Stopped { .. })
    ));
}

/// Runs `body` in a thread without root's rights over files.
fn without_rights<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: the arguments are numbers, and the kernel changes only this thread.
            unsafe { libc::syscall(libc::SYS_setfsuid, 65534) };
            body()
        });
        thread.join().unwrap()
    })
}

#[test]
fn counters_that_may_not_be_read_are_told_from_those_that_are_missing() {
    let tree = Tree::new();
    let zone = tree.zone("intel-rapl:0", "package-0", 1 << 40);
    let event = tree.pmu(&[("energy-pkg", 2)], &[0]).remove(0);
    for dial in [&zone, &event] {
        fs::set_permissions(dial.path(), fs::Permissions::from_mode(0o600)).unwrap();
    }
    if fs::metadata("/proc/self").map(|it| std::os::unix::fs::MetadataExt::uid(&it)).unwrap() != 0 {
        // The owner may read a file with mode 0600, so all rights are removed.
        for dial in [&zone, &event] {
            fs::set_permissions(dial.path(), fs::Permissions::from_mode(0o000)).unwrap();
        }
    }
    let options = tree.options();
    let channels = without_rights(|| Meter::open(&options).channels());
    let found = states(&channels);
    assert_eq!(found["powercap package-0"], "no_permission", "{channels:#?}");
    assert_eq!(found["perf package-0"], "no_permission");
    assert_eq!(found["powercap dram-0"], "no_domain");
    assert_eq!(found["perf dram"], "no_domain");
    let reason = channels.iter().find_map(|it| it.unavailable.as_ref()).unwrap();
    assert!(channels.iter().all(|it| it.unavailable.is_some()), "{reason}");
}

#[test]
fn nonsense_in_a_file_is_told_and_nothing_else_suffers() {
    let tree = Tree::new();
    let good = tree.zone("intel-rapl:1", "package-1", 1 << 40);
    tree.zone("intel-rapl:0", "package-0", 1 << 40);
    tree.put("sys/class/powercap/intel-rapl:0/energy_uj", "-7 bananas\n");
    tree.pmu(&[("energy-pkg", 2)], &[0]);
    tree.put("sys/bus/event_source/devices/power/events/energy-pkg.unit", "Calories\n");
    let mill = Mill::start(vec![(good, 1_000_000)]);
    let meter = Meter::open(&tree.options());
    let found = states(&meter.channels());
    assert_eq!(found["powercap package-0"], "malformed");
    assert_eq!(found["perf package"], "malformed");
    assert_eq!(found["powercap package-1"], "live");
    drop(mill);
}

#[test]
fn an_empty_node_says_why_for_each_source() {
    let tree = Tree::new();
    let meter = Meter::open(&tree.options());
    let expected = [
        ("hwmon sensor", "absent"),
        ("nvml gpu", "no_library"),
        ("perf dram", "absent"),
        ("perf package", "absent"),
        ("powercap dram", "absent"),
        ("powercap package", "absent"),
    ];
    let expected = expected.into_iter().map(|(name, kind)| (name.to_owned(), kind)).collect();
    assert_eq!(states(&meter.channels()), expected);
}
