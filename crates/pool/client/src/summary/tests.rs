//! Counting without a pool, and what the text, the JSON and the sentences say of given figures.

use std::thread;

use penstock_wire::PayloadRule;
use penstock_wire::calls::to_worker;

use super::sentences::of as sentences_of;
use super::*;

/// Figures of a run with one node. The commands have a count and bytes, the waits a count and ms.
fn run_of(ran_ms: u64, commands: &[(Command, u64, u64)], waits: &[(Reason, u64, u64)]) -> Figures {
    let mut counts = Counts::default();
    for (command, count, sum) in commands {
        counts.commands[*command as usize] = Amount { count: *count, sum: *sum };
    }
    for (reason, count, ms) in waits {
        counts.waits[*reason as usize] = Amount { count: *count, sum: *ms * 1_000_000 };
    }
    Figures {
        process: 4711,
        program: "program".into(),
        face: "OpenCL",
        ran: Duration::from_millis(ran_ms),
        threads: 1,
        open: 0,
        others: Counts::default(),
        nodes: vec![NodeFigures { name: "gpu01 (tcp:gpu01)".into(), is_lost: false, counts }],
    }
}

#[test]
fn reads_that_bound_a_run_are_named() {
    let figures = run_of(46_000, &[(Command::Read, 4312, 64)], &[(Reason::Read, 4312, 45_000)]);
    assert_eq!(
        sentences_of(&figures),
        [
            "The program waited for the pool in 45.0 s of 46.0 s.",
            "4,312 blocking reads and maps took 45.0 s. A read can also wait for the commands \
             before it.",
        ]
    );
}

#[test]
fn waits_that_have_not_ended_are_told() {
    let mut figures = run_of(10_000, &[], &[(Reason::Finish, 1, 1000)]);
    figures.open = 1;
    assert_eq!(
        sentences_of(&figures),
        [
            "The program waited for the pool in 1.00 s of 10.0 s.",
            "1 wait had not ended when the program did. Its time is not counted.",
        ]
    );
    figures.open = 2;
    let told = &sentences_of(&figures)[1];
    assert_eq!(told, "2 waits had not ended when the program did. Their time is not counted.");
}

#[test]
fn two_reasons_are_named_the_longer_first() {
    let waits = [
        (Reason::Open, 1, 2400),
        (Reason::Finish, 120, 2600),
        (Reason::Build, 3, 5000),
        (Reason::Event, 9, 0),
    ];
    assert_eq!(
        sentences_of(&run_of(10_000, &[], &waits)),
        [
            "The program waited for the pool in 10.0 s of 10.0 s.",
            "3 builds took 5.00 s.",
            "120 waits for a whole queue took 2.60 s, 21.7 ms on average.",
        ]
    );
}

#[test]
fn a_program_that_seldom_waits_is_bound_by_itself() {
    let figures = run_of(10_000, &[], &[(Reason::Finish, 1, 1000)]);
    assert_eq!(
        sentences_of(&figures),
        ["The program waited for the pool in 1.00 s of 10.0 s. The other 9.00 s passed \
             outside of such waits."]
    );
    // A quarter of the run is a bound.
    let bound = |ms| sentences_of(&run_of(10_000, &[], &[(Reason::Reply, 7, ms)])).len();
    assert_eq!((bound(2499), bound(2500)), (1, 2));
    assert_eq!(
        sentences_of(&run_of(10_000, &[], &[])),
        ["The program waited for the pool in 0.00 µs of 10.0 s. The other 10.0 s passed outside \
             of such waits."]
    );
}

#[test]
fn the_time_of_several_threads_is_no_part_of_the_run() {
    let mut figures = run_of(10_000, &[], &[(Reason::Event, 2, 15_000), (Reason::Room, 1, 5000)]);
    figures.threads = 2;
    assert_eq!(
        sentences_of(&figures),
        [
            "2 threads of the program waited for the pool, 20.0 s in total, in a run of 10.0 s.",
            "2 waits for events took 15.0 s, 7.50 s on average.",
            "1 call that found a full link took 5.00 s: a node had not yet taken what was sent \
             before.",
        ]
    );
    figures.nodes[0].counts.waits[Reason::Event as usize].sum = 0;
    figures.nodes[0].counts.waits[Reason::Room as usize].sum = 1_000_000_000;
    let told = sentences_of(&figures);
    assert_eq!(
        told,
        ["2 threads of the program waited for the pool, 1.00 s in total, in a run of 10.0 s."]
    );
}

#[test]
fn each_reason_has_a_sentence_that_ends() {
    for reason in Reason::ALL {
        let told = sentences_of(&run_of(10_000, &[], &[(*reason, 1, 9000)]));
        assert!(
            told.len() == 2 && told[1].ends_with('.') && told[1].contains("9.00 s"),
            "{told:?}"
        );
    }
}

#[test]
fn the_text_has_the_numbers_first_and_fits_a_terminal() {
    let commands = [(Command::Launch, 1_234_567, 0), (Command::Write, 1, 4_200_000_000)];
    let mut figures = run_of(46_123, &commands, &[(Reason::Build, 1, 999)]);
    figures.others.waits[Reason::Open as usize] = Amount { count: 1, sum: 45_000 };
    assert_eq!(
        text::of(&figures),
        "\
penstock: summary of process 4711 (program, OpenCL)
      46.1 s  since its first call
      999 ms  in 1 build
     45.0 µs  in 1 opening of the pool
   1,234,567  launches
           1  write, 4.20 GB
On node gpu01 (tcp:gpu01)
The program waited for the pool in 999 ms of 46.1 s. The other 45.1 s passed
outside of such waits.
"
    );
    let mut lost = figures.nodes[0].clone();
    lost.is_lost = true;
    lost.name = "gpu02 (tcp:gpu02)".into();
    figures.nodes.push(lost);
    let told = text::of(&figures);
    assert!(told.contains("   2,469,134  launches\n"), "{told}");
    let node =
        "On node gpu02 (tcp:gpu02), which was lost:\n      999 ms  in 1 build\n   1,234,567  ";
    assert!(told.contains(node), "{told}");
    assert!(told.lines().all(|line| line.chars().count() <= 80), "{told}");
}

#[test]
fn numbers_have_three_digits() {
    let bytes = [0, 999, 1000, 999_499, 999_500, 12_345_678, u64::MAX].map(number::bytes);
    assert_eq!(bytes, ["0 B", "999 B", "1.00 kB", "999 kB", "1.00 MB", "12.3 MB", "18447 PB"]);
    let times = [0, 999, 99_960, 999_499, 999_500, 999_499_999, 999_500_000, 100_000_000_000]
        .map(|ns| number::time(Duration::from_nanos(ns)));
    let expected =
        ["0.00 µs", "1.00 µs", "100 µs", "999 µs", "1.00 ms", "999 ms", "1.00 s", "100 s"];
    assert_eq!(times, expected);
    assert_eq!([7, 999, 1000, 1_234_567].map(number::number), ["7", "999", "1,000", "1,234,567"]);
}

#[test]
fn the_json_has_one_line_whatever_the_names_contain() {
    let mut figures =
        run_of(1500, &[(Command::Read, 2, 64), (Command::Copy, 1, 0)], &[(Reason::Read, 2, 500)]);
    figures.program = "a \"b\" \\ \n\u{1} ö".into();
    let line = json::of(&figures);
    assert!(
        line.starts_with(r#"{"process":4711,"program":"a \"b\" \\ \u000a\u0001 ö","interface""#),
        "{line}"
    );
    for part in [
        r#""interface":"OpenCL","seconds":1.5,"waiting_threads":1,"open_waits":0,"#,
        r#""reads":{"count":2,"bytes":64},"copies":{"count":1},"#,
        r#""waits":{"read":{"count":2,"seconds":0.5},"#,
        r#""nodes":[{"name":"gpu01 (tcp:gpu01)","lost":false,"commands":{"launches":{"count":0},"#,
        r#""sentences":["The program waited for the pool in 500 ms of 1.50 s.","#,
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert_eq!(line.find('\n'), Some(line.len() - 1));
}

#[test]
fn every_call_that_carries_content_counts_as_a_write() {
    let stream = |it: &&(u16, &str, usize, PayloadRule)| it.3 == PayloadRule::Stream;
    let calls: Vec<_> = to_worker::TABLE.iter().filter(stream).collect();
    assert!(calls.len() >= 5, "{calls:?}");
    for (opcode, name, ..) in calls {
        assert_eq!(Command::of_call(*opcode), Some(Command::Write), "{name}");
    }
}

#[test]
fn calls_count_with_their_bytes() {
    let tally = Tally::default();
    tally.sent::<to_worker::LaunchKernel>(100);
    tally.sent::<to_worker::WriteBuffer>(64);
    tally.sent::<to_worker::ReadBuffer>(0);
    tally.arrived(32);
    tally.sent::<to_worker::Marker>(0);
    let counts = tally.counts();
    let told = |command| {
        let Amount { count, sum } = counts.command(command);
        (count, sum)
    };
    // The arguments of a launch are no content.
    assert_eq!(told(Command::Launch), (1, 0));
    assert_eq!(told(Command::Write), (1, 64));
    assert_eq!(told(Command::Read), (1, 32));
    let all: u64 = counts.commands.iter().map(|amount| amount.count).sum();
    assert_eq!(all, 3);
}

/// A wait that counts.
fn wait(tally: &Tally, reason: Reason) {
    waiting(Some(tally), reason, || {
        let since = Instant::now();
        while since.elapsed() < WAIT_MIN {
            std::hint::spin_loop();
        }
    });
}

#[test]
fn waits_within_another_count_once_for_its_reason() {
    let tally = Tally::default();
    within(Some(&tally), Reason::Read, || {
        wait(&tally, Reason::Event);
        within(Some(&tally), Reason::Finish, || wait(&tally, Reason::Finish));
        wait(&tally, Reason::Reply);
    });
    wait(&tally, Reason::Event);
    within(Some(&tally), Reason::Write, || ());
    let counts = tally.counts().waits.map(|amount| amount.count);
    let mut expected = [0; REASONS];
    expected[Reason::Read as usize] = 1;
    expected[Reason::Event as usize] = 1;
    assert_eq!(counts, expected);
    let ns = |reason| tally.counts().wait(reason).time();
    assert!(ns(Reason::Read) >= WAIT_MIN * 3 && ns(Reason::Event) >= WAIT_MIN);
}

#[test]
fn a_wait_inside_another_is_part_of_its_time() {
    let tally = Tally::default();
    let part = Duration::from_secs(100);
    waiting(Some(&tally), Reason::Reply, || {
        tally.add_wait(Reason::Room, part);
        waiting(Some(&tally), Reason::Event, || tally.add_wait(Reason::Room, part));
        within(Some(&tally), Reason::Read, || tally.add_wait(Reason::Room, part));
        wait(&tally, Reason::Event);
    });
    within(Some(&tally), Reason::Finish, || {
        waiting(Some(&tally), Reason::Event, || {
            tally.add_wait(Reason::Room, part);
            wait(&tally, Reason::Event);
        });
    });
    let counts = tally.counts();
    assert!(counts.waited() < part, "{counts:?}");
    let numbers = counts.waits.map(|amount| amount.count);
    let mut expected = [0; REASONS];
    expected[Reason::Reply as usize] = 1;
    expected[Reason::Finish as usize] = 1;
    assert_eq!(numbers, expected);
}

#[test]
fn only_threads_of_the_program_wait() {
    let tally = Arc::new(Tally::default());
    let waits = tally.clone();
    penstock_process::start("test-own", move || wait(&waits, Reason::Event))
        .unwrap()
        .join()
        .unwrap();
    assert_eq!(tally.counts().wait(Reason::Event).count, 0);
    let waits = tally.clone();
    thread::spawn(move || wait(&waits, Reason::Event)).join().unwrap();
    assert_eq!(tally.counts().wait(Reason::Event).count, 1);
}

#[test]
fn requests_are_waited_for_by_their_names() {
    assert_eq!(Reason::of_request(to_worker::Finish::NAME), Reason::Finish);
    assert_eq!(Reason::of_request(to_worker::LinkProgram::NAME), Reason::Build);
    assert_eq!(Reason::of_request(to_worker::MemAddress::NAME), Reason::Reply);
}

#[test]
fn without_a_wish_nothing_counts() {
    assert_eq!(open("OpenCL", || 7), 7);
    assert!(of_node("node").is_none() && others().is_none());
}
