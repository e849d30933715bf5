//! A worker and its daemon that look in turn, on a clock of the test.

use proptest::prelude::*;

use super::*;

const LOOK: Duration = Duration::from_millis(375);
const MAX: Duration = Duration::from_secs(3);
const CORES: u32 = 2;

/// What the worker does in one look's time.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    /// Core time for its client's commands and builds, and of its own threads.
    commands: Duration,
    own: Duration,
    /// Core time of a driver's threads that move pieces of content.
    pieces: Duration,
    /// Core time of threads that a kernel has left.
    left: Duration,
    /// Whether a command still runs at the end of the time.
    is_busy: bool,
}

#[derive(Default)]
struct Session {
    account: Account,
    stray: Stray,
    doing: Doing,
    told: Told,
}

impl Session {
    fn step(&mut self, step: Step) -> Option<Excess> {
        self.doing.used += step.commands + step.own + step.left + step.pieces;
        self.doing.own += step.own;
        self.doing.staged += u64::from(!step.pieces.is_zero());
        self.doing.steps += u64::from(!step.commands.is_zero());
        self.doing.is_busy = step.is_busy;
        self.told = self.account.look(self.doing);
        self.stray.look(LOOK, self.doing.used, self.told, (MAX, CORES))
    }

    /// Does the same again and again. Returns after how many looks the session ends.
    fn run(&mut self, looks: u32, step: Step) -> Option<(u32, Excess)> {
        (1..=looks).find_map(|look| Some((look, self.step(step)?)))
    }
}

fn launch(is_busy: bool) -> Step {
    Step { commands: LOOK * CORES, is_busy, ..Step::default() }
}

#[test]
fn a_thread_that_outlives_its_kernel_has_the_time_of_a_kernel() {
    let mut session = Session::default();
    assert_eq!(session.step(launch(false)), None);
    let (looks, why) = session.run(100, Step { left: LOOK, ..Step::default() }).unwrap();
    assert_eq!(why, Excess::Stray);
    // Its core time, the sixteenth that is forgiven, and the look after the launch.
    assert!((MAX..MAX + 3 * LOOK).contains(&(LOOK * looks)), "{looks}");
}

#[test]
fn a_client_that_talks_hides_nothing() {
    let mut session = Session::default();
    session.step(launch(false));
    let talks = Step { left: LOOK, own: LOOK / 3, ..Step::default() };
    assert_eq!(session.run(12, talks).map(|(_, why)| why), Some(Excess::Stray));
}

#[test]
fn commands_and_content_take_any_time() {
    let mut session = Session::default();
    // One long command, then many short ones, then content that own threads and drivers move.
    assert_eq!(session.run(1_000, Step { is_busy: true, ..launch(true) }), None);
    assert_eq!(session.run(1_000, launch(false)), None);
    assert_eq!(session.step(Step::default()), None);
    let moves = Step { pieces: LOOK, own: LOOK, ..Step::default() };
    assert_eq!(session.run(1_000, moves), None);
    assert_eq!(session.told.stray, Duration::ZERO);
}

#[test]
fn threads_of_drivers_may_look_for_work_after_a_command() {
    let mut session = Session::default();
    for _ in 0..1_000 {
        assert_eq!(session.step(launch(false)), None);
        assert_eq!(session.step(Step { left: LOOK * CORES, ..Step::default() }), None);
    }
}

#[test]
fn a_worker_that_no_longer_looks_ends() {
    let mut session = Session::default();
    session.step(launch(true));
    let told = session.told;
    let mut used = session.doing.used;
    let mut looks = 0;
    let why = loop {
        used += LOOK;
        looks += 1;
        if let Some(why) = session.stray.look(LOOK, used, told, (MAX, CORES)) {
            break why;
        }
    };
    assert_eq!(why, Excess::Unseen);
    assert!(LOOK * looks > MAX * CORES, "{looks}");
}

#[test]
fn what_a_worker_took_before_its_session_does_not_count() {
    let mut stray = Stray::default();
    let used = Duration::from_secs(1_000);
    assert_eq!(stray.look(LOOK, used, Told::default(), (MAX, CORES)), None);
    assert_eq!(stray.look(LOOK, used + LOOK, Told::default(), (MAX, CORES)), None);
}

#[test]
fn a_limit_that_comes_back_judges_only_what_follows() {
    let mut session = Session::default();
    session.step(launch(false));
    session.run(8, Step { left: LOOK, ..Step::default() });
    // No limit: the daemon forgets the session, and the worker does not look.
    (session.stray, session.doing.used) = (Stray::default(), session.doing.used + 100 * MAX);
    session.account.rest();
    assert_eq!(session.run(7, Step { left: LOOK, ..Step::default() }), None);
    let end = session.run(4, Step { left: LOOK, ..Step::default() });
    assert_eq!(end.map(|(_, why)| why), Some(Excess::Stray));
    // It may go and come back often.
    let mut session = Session::default();
    session.step(launch(false));
    for _ in 0..100 {
        assert_eq!(session.run(4, Step { left: LOOK, ..Step::default() }), None);
        session.doing.used += 100 * MAX;
        session.stray = Stray::default();
        session.account.rest();
    }
}

proptest! {
    /// Whatever a session does for its client, and with 5 % of a core beside that, it goes on.
    #[test]
    fn honest_sessions_go_on(
        steps in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>()), 1..500),
    ) {
        let mut session = Session::default();
        for (has_commands, is_busy, has_pieces) in steps {
            let commands = if has_commands { LOOK * CORES } else { Duration::ZERO };
            // A command that runs at a look has begun before it.
            let is_busy = is_busy && has_commands;
            let pieces = if has_pieces { LOOK } else { Duration::ZERO };
            let step = Step { commands, own: LOOK / 2, pieces, left: LOOK / 20, is_busy };
            prop_assert_eq!(session.step(step), None);
        }
    }

    /// A thread that takes a core while nothing is done for the client ends its session in time,
    /// whatever was before.
    #[test]
    fn threads_that_stay_end_their_session(
        before in prop::collection::vec((any::<bool>(), any::<bool>()), 0..50),
    ) {
        let mut session = Session::default();
        for (has_commands, has_pieces) in before {
            let time = |is_there| if is_there { LOOK } else { Duration::ZERO };
            let (commands, pieces) = (time(has_commands), time(has_pieces));
            prop_assert_eq!(session.step(Step { commands, pieces, ..Step::default() }), None);
        }
        let end = session.run(11, Step { left: LOOK, ..Step::default() });
        prop_assert_eq!(end.map(|(_, why)| why), Some(Excess::Stray));
    }
}
