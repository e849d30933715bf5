//! Measurement of commands: core-seconds, the end of the command, and energy net of idle power.

mod common;

use std::time::Duration;

use common::{Mill, Tree, compile, stub};
use penstock_energy::command::{Measured, Outcome, measure};
use penstock_energy::{Error, Meter, PowerModel};
use penstock_trial::{in_time, patience};

fn run(meter: &mut Meter, words: &[&str], idle: Duration) -> Result<Outcome, Error> {
    measure(meter, &Measured { words: words.iter().map(Into::into).collect(), idle, belongs: None })
}

#[test]
fn core_seconds_have_all_threads_and_children() {
    let tree = Tree::new();
    let program = tree.path().join("work");
    compile(&["-O1", "-pthread", "-o", program.to_str().unwrap(), &stub("work.c")]);
    let mut meter = Meter::open(&tree.options());
    let outcome = run(&mut meter, &[program.to_str().unwrap(), "7"], Duration::ZERO).unwrap();
    assert_eq!(outcome.exit_code(), 7);
    let cores = &outcome.report.core_seconds;
    let busy = cores.busy.unwrap();
    // 0.5 s by the threads' own clocks, and the time that starting a program takes.
    assert!((0.495..0.6).contains(&busy), "{cores:?}");
    assert!((cores.user.unwrap() + cores.system.unwrap() - busy).abs() < 1e-9);
    assert_eq!(cores.of, "command");
    assert!(
        outcome.report.seconds >= 0.3,
        "two threads and then a child: {}",
        outcome.report.seconds
    );
    // An empty node has nothing to measure, so there is no figure, and not 0.
    assert_eq!(outcome.report.total.joules, None);
}

#[test]
fn the_end_of_a_command_is_handed_on() {
    let tree = Tree::new();
    let mut meter = Meter::open(&tree.options());
    assert_eq!(run(&mut meter, &["true"], Duration::ZERO).unwrap().exit_code(), 0);
    assert_eq!(run(&mut meter, &["sh", "-c", "exit 42"], Duration::ZERO).unwrap().exit_code(), 42);
    assert_eq!(
        run(&mut meter, &["sh", "-c", "kill -KILL $$"], Duration::ZERO).unwrap().exit_code(),
        128 + 9
    );
}

#[test]
fn a_program_that_is_not_there_is_found_out_before_anything_is_measured() {
    let tree = Tree::new();
    let mut meter = Meter::open(&tree.options());
    let idle = 2 * patience();
    for name in ["no-such-program-anywhere", "/no/such/program"] {
        let ended = in_time(name, || run(&mut meter, &[name], idle));
        let Err(Error::Execute { source, .. }) = ended else { panic!("{name}") };
        assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
    }
    // Only running a file shows that it is no program. The meter can be used again.
    let text = tree.put("text", "x");
    assert!(matches!(
        run(&mut meter, &[text.to_str().unwrap()], Duration::ZERO),
        Err(Error::Execute { .. })
    ));
    assert_eq!(run(&mut meter, &["true"], Duration::ZERO).unwrap().exit_code(), 0);
}

#[test]
#[ignore = "perf: the thread that turns the dials must run often"]
fn perf_a_command_that_changes_nothing_takes_nothing_net_of_idle() {
    let tree = Tree::new();
    let zone = tree.zone("intel-rapl:0", "package-0", 1 << 40);
    let _mill = Mill::start(vec![(zone, 40_000_000)]);
    let mut meter = Meter::open(&tree.options());
    let outcome = run(&mut meter, &["sleep", "0.8"], Duration::from_millis(800)).unwrap();
    let total = &outcome.report.total;
    let (joules, net) = (total.joules.unwrap(), total.net_joules.unwrap());
    assert!(joules > 0.7 * 32.0, "{total:?}");
    // The thread that turns the dials may be delayed by other processes. The margin still shows
    // that idle power is subtracted.
    assert!(net.abs() < 0.25 * joules, "{total:?}");
    let idle = outcome.report.idle;
    assert!(idle.before_s.unwrap() >= 0.8 && idle.after_s.unwrap() >= 0.8, "{idle:?}");
}

#[test]
fn a_power_model_has_figures_of_its_own_and_changes_no_others() {
    let tree = Tree::new();
    let file =
        tree.put("model.toml", "busy_core_watts = 10.0\nidle_core_watts = 2.0\nbase_watts = 30\n");
    let mut meter = Meter::open(&tree.options());
    meter.set_model(Some(PowerModel::read(&file).unwrap()));
    meter.start().unwrap();
    // 2 s busy and 10 s idle, in ticks of 10 ms.
    tree.put("proc/stat", "cpu  200 0 200 2000 0 0 0 0 0 0\n");
    meter.stop().unwrap();
    let report = meter.report().unwrap();
    let model = report.model.as_ref().unwrap();
    let expected = 2.0 * 10.0 + 10.0 * 2.0 + 30.0 * report.seconds;
    assert!((model.model_host_joules.unwrap() - expected).abs() < 1e-6, "{model:?}");
    let busy = report.core_seconds.busy.unwrap();
    assert!((model.model_busy_joules.unwrap() - busy * 10.0).abs() < 1e-9);
    assert_eq!(report.total.joules, None);
    let json = serde_json::to_value(&report).unwrap();
    assert!(
        json["model"].as_object().unwrap().keys().all(|key| key.starts_with("model_")),
        "{json}"
    );
    for wrong in [
        "",
        "busy_core_watts = -1\nidle_core_watts = 0",
        "busy_core_watts = 1\nidle_core_watts = 1\nx = 1",
    ] {
        let file = tree.put("wrong.toml", wrong);
        assert!(matches!(PowerModel::read(&file), Err(Error::Model { .. })), "{wrong:?}");
    }
}

#[test]
fn calls_in_a_wrong_order_are_refused() {
    let tree = Tree::new();
    let mut meter = Meter::open(&tree.options());
    assert!(matches!(meter.report(), Err(Error::Order(_))));
    assert!(matches!(meter.stop(), Err(Error::Order(_))));
    assert!(matches!(meter.report_so_far(), Err(Error::Order(_))));
    assert!(matches!(meter.idle(Duration::ZERO), Err(Error::Span { .. })));
    meter.start().unwrap();
    assert!(matches!(meter.start(), Err(Error::Order(_))));
    assert!(matches!(meter.idle(Duration::from_millis(1)), Err(Error::Order(_))));
    assert!(matches!(meter.report(), Err(Error::Order(_))));
    meter.report_so_far().unwrap();
    meter.stop().unwrap();
    meter.report().unwrap();
}
