//! A member that another test has started.

use std::time::Duration;

use penstock_ggas::{Heap, Path, Plan};
use penstock_trial::{Need, skip};

use crate::mesh::{Told, say};
use crate::pe::{self, Pe};
use crate::{barriers, ends, litmus, speed, verbs};

pub fn serve() {
    let Some(told) = Told::hear() else { return };
    let Some(device) = pe::device() else {
        say("skipped", &[]);
        return;
    };
    let heap = told.heap();
    let (source, play): (&str, fn(&Pe, &Told)) = match told.scenario.as_str() {
        "speed" => (speed::SOURCE, speed::member),
        "litmus" => (litmus::SOURCE, litmus::member),
        "barriers" => (barriers::SOURCE, barriers::member),
        "ends" => (ends::SOURCE, ends::member),
        "verbs" => (verbs::SOURCE, verbs::member),
        other => panic!("no scenario {other}"),
    };
    let pe = Pe::new(&heap, told.me, &device, source, &told.options);
    play(&pe, &told);
    drop((pe, heap));
    // In any case nothing of the heap remains in the process.
    drop(device);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    say("left_mapped", &[maps.matches("penstock-heap").count() as u64]);
    say("done", &[]);
}

/// Scenario for two PEs of one process.
pub struct Cast {
    pub scenario: &'static str,
    pub options: &'static str,
    pub args: Vec<u64>,
}

/// Runs the scenario, each PE on its own thread and queue.
pub fn in_one_process(cast: &Cast, source: &'static str, play: fn(&Pe, &Told)) {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        skip(Need::Cores, "two kernels of one driver need two cores");
        return;
    }
    let Some(device) = pe::device() else { return };
    let plan = Plan {
        id: 1,
        members: vec![0, 0],
        me: 0,
        bytes: 1 << 20,
        timeout: Duration::from_secs(60),
        force_proxy: true,
    };
    let heap = Heap::create(plan).unwrap();
    heap.start().unwrap();
    assert_eq!(heap.path(0, 1).unwrap(), Path::Own);
    std::thread::scope(|scope| {
        for me in 0..2 {
            let pe = Pe::new(&heap, me, &device, source, cast.options);
            let told = Told::alone(me, cast.scenario, &cast.args);
            scope.spawn(move || play(&pe, &told));
        }
    });
}
