//! Accelerators and drivers' sensors, on a node made of files and a stub of NVML.

mod common;

use std::os::unix::fs::symlink;
use std::thread;
use std::time::Duration;

use common::{Dial, Mill, Tree, assert_joules, figure, states};
use penstock_energy::{Meter, Method, Options, Report};

const INTERVAL: Duration = Duration::from_millis(5);

fn channel<'a>(report: &'a Report, component: &str, method: Method) -> &'a penstock_energy::Figure {
    report.figures.iter().find(|it| it.component == component && it.method == method).unwrap()
}

/// Makes a stub with one card. Returns its counter and, if named, its power.
fn card(tree: &Tree, power: Option<&str>) -> (Dial, Option<Dial>) {
    tree.nvml("nvml.c");
    tree.put("gpus", "1\n");
    let counter = Dial::new(&tree.put("gpu0.energy", ""), None);
    let power = power.map(|name| Dial::new(&tree.put(&format!("gpu0.{name}"), ""), None));
    (counter, power)
}

#[test]
fn a_cards_counter_is_used_and_its_samples_stand_beside_it() {
    let tree = Tree::new();
    let (counter, power) = card(&tree, Some("power"));
    let mut power = power.unwrap();
    power.set(250_000);
    // 250 W in mJ.
    let mill = Mill::start(vec![(counter, 250_000)]);
    let mut meter = Meter::open(&Options { interval: INTERVAL, ..tree.options() });
    let begin = {
        let held = mill.hold();
        meter.start().unwrap();
        held.sum(0)
    };
    thread::sleep(Duration::from_millis(1000));
    let end = {
        let held = mill.hold();
        meter.stop().unwrap();
        held.sum(0)
    };
    let report = meter.report().unwrap();
    let injected = (end - begin) as f64 * 1e-3;
    let counted = channel(&report, "gpu-0", Method::Counter);
    let sampled = channel(&report, "gpu-0", Method::Samples);
    assert_joules(counted.joules, injected, "counter");
    assert_joules(report.total.joules, injected, "total");
    assert_joules(sampled.joules, 250.0 * sampled.seconds.unwrap(), "samples");
    assert!(counted.in_total && !sampled.in_total);
    // More than the readings of the start and of the end.
    assert!(sampled.readings > 2, "{sampled:?}");
    assert!(sampled.detail.contains("as the driver averages it"), "{sampled:?}");
    assert_eq!((sampled.min_watts, sampled.max_watts), (Some(250.0), Some(250.0)));
    assert_eq!(report.checks.len(), 1);
}

#[test]
fn a_card_without_a_counter_is_sampled() {
    let tree = Tree::new();
    let (counter, power) = card(&tree, Some("instant"));
    std::fs::remove_file(counter.path()).unwrap();
    let mut power = power.unwrap();
    power.set(100_000);
    let mut meter = Meter::open(&Options { interval: INTERVAL, ..tree.options() });
    meter.start().unwrap();
    thread::sleep(Duration::from_millis(500));
    power.set(300_000);
    thread::sleep(Duration::from_millis(500));
    meter.stop().unwrap();
    let report = meter.report().unwrap();
    let sampled = channel(&report, "gpu-0", Method::Samples);
    assert!(sampled.in_total && sampled.detail.contains("power of the moment"), "{sampled:?}");
    assert_eq!((sampled.min_watts, sampled.max_watts), (Some(100.0), Some(300.0)));
    let watts = sampled.mean_watts.unwrap();
    assert!(watts > 100.0 && watts < 300.0, "{watts}");
    let counted = channel(&report, "gpu-0", Method::Counter);
    let reason = counted.unavailable.as_ref().unwrap().to_string();
    assert!(reason.contains("nvmlDeviceGetTotalEnergyConsumption: Not Supported (3)"), "{reason}");
}

#[test]
fn a_cards_dead_counter_and_a_forbidden_one_are_told() {
    let tree = Tree::new();
    // The counter stands still, and the power may not be read.
    card(&tree, None).0.set(4711);
    tree.put("gpu0.power", "");
    let channels = Meter::open(&tree.options()).channels();
    let kinds: Vec<_> =
        channels.iter().take(2).map(|it| it.unavailable.as_ref().unwrap().kind()).collect();
    assert_eq!(kinds, ["dead_counter", "no_permission"]);
}

#[test]
fn penstocks_own_library_of_that_name_is_not_asked() {
    let tree = Tree::new();
    // This library ends the process if it is initialised.
    tree.nvml("own.c");
    assert_eq!(states(&Meter::open(&tree.options()).channels())["nvml gpu"], "own_library");
    // The library that is shipped must have the symbol that marks it.
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../faces/nvml/src/lib.rs");
    let source = std::fs::read_to_string(shipped).unwrap();
    assert!(
        source.contains("#[unsafe(no_mangle)]\npub extern \"C\" fn penstock_nvml()"),
        "the symbol that marks the library is missing"
    );
}

#[test]
fn a_host_without_cards_says_so() {
    let tree = Tree::new();
    tree.nvml("nvml.c");
    tree.put("gpus", "0\n");
    assert_eq!(states(&Meter::open(&tree.options()).channels())["nvml gpu"], "no_device");
}

/// Makes the directory of a driver.
fn chip(tree: &Tree, number: u32, name: &str, device: &str) -> String {
    let chip = format!("sys/class/hwmon/hwmon{number}");
    tree.put(&format!("{chip}/name"), format!("{name}\n"));
    tree.put(&format!("sys/devices/{device}/vendor"), "0x1002\n");
    symlink(tree.path().join("sys/devices").join(device), tree.path().join(&chip).join("device"))
        .unwrap();
    chip
}

#[test]
fn drivers_sensors_are_known_for_what_they_cover() {
    let tree = Tree::new();
    let mut dials = Vec::new();
    let mut counter =
        |path: String| dials.push((Dial::new(&tree.put(&path, ""), None), 10_000_000));
    let amd = chip(&tree, 0, "amd_energy", "amd_energy.0");
    tree.put(&format!("{amd}/energy1_label"), "Ecore000\n");
    counter(format!("{amd}/energy1_input"));
    tree.put(&format!("{amd}/energy2_label"), "Esocket0\n");
    counter(format!("{amd}/energy2_input"));
    let xe = chip(&tree, 1, "xe", "0000:03:00.0");
    tree.put(&format!("{xe}/energy1_label"), "card\n");
    counter(format!("{xe}/energy1_input"));
    tree.put(&format!("{xe}/energy2_label"), "pkg\n");
    counter(format!("{xe}/energy2_input"));
    let card = chip(&tree, 2, "amdgpu", "0000:41:00.0");
    tree.put(&format!("{card}/power1_average"), "90000000\n");
    tree.put(&format!("{card}/power1_input"), "91000000\n");
    tree.put("sys/devices/0000:41:00.0/gpu_metrics", [0x70, 0, 1, 3, 0, 0]);
    let inside = chip(&tree, 3, "amdgpu", "0000:c1:00.0");
    tree.put(&format!("{inside}/power1_input"), "15000000\n");
    tree.put("sys/devices/0000:c1:00.0/gpu_metrics", [0x80, 0, 2, 1, 0, 0]);
    let board = chip(&tree, 4, "power_meter", "ACPI000D:00");
    tree.put(&format!("{board}/power1_average"), "200000000\n");
    let dead = chip(&tree, 5, "psu", "1-0058");
    tree.put(&format!("{dead}/power1_input"), "0\n");

    let mill = Mill::start(dials);
    let mut meter = Meter::open(&Options { interval: INTERVAL, ..tree.options() });
    let mut dials = mill.stop();
    meter.start().unwrap();
    dials.iter_mut().for_each(|dial| dial.add(3_000_000));
    thread::sleep(Duration::from_millis(300));
    meter.stop().unwrap();
    let report = meter.report().unwrap();
    assert_joules(figure(&report, "hwmon", "package-0").joules, 3.0, "socket");
    assert_joules(figure(&report, "hwmon", "gpu 0000:03:00.0").joules, 3.0, "Intel's card");
    let card = figure(&report, "hwmon", "gpu 0000:41:00.0");
    assert_joules(card.joules, 90.0 * card.seconds.unwrap(), "AMD's card, the average");
    assert_eq!(report.total.covered, ["package-0", "gpu 0000:03:00.0", "gpu 0000:41:00.0"]);
    let names: Vec<_> = report
        .figures
        .iter()
        .filter(|it| it.source.name() == "hwmon")
        .map(|it| it.component.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "package-0",
            "gpu 0000:03:00.0",
            "gpu 0000:03:00.0 pkg",
            "gpu 0000:41:00.0",
            // Inside a processor: the figure is that of the whole socket, which RAPL counts.
            "amdgpu 0000:c1:00.0 power1",
            "ACPI000D:00 power1",
            "psu 1-0058 power1",
        ]
    );
    assert_eq!(states(&meter.channels())["hwmon psu 1-0058 power1"], "dead_counter");
}

#[test]
fn a_counter_that_is_reset_has_no_figure() {
    let tree = Tree::new();
    let (counter, _) = card(&tree, None);
    let mill = Mill::start(vec![(counter, 1_000_000)]);
    let mut meter = Meter::open(&tree.options());
    let mut counter = mill.stop().remove(0);
    meter.start().unwrap();
    counter.set(1);
    meter.stop().unwrap();
    let report = meter.report().unwrap();
    assert_eq!(
        channel(&report, "gpu-0", Method::Counter).unavailable.as_ref().unwrap().kind(),
        "reset"
    );
    assert_eq!(report.total.joules, None);
}
