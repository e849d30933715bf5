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
fn threads_of_drivers_may_look_for_work_after_a_command() {
    let mut session = Session::default();
    for _ in 0..1_000 {
        assert_eq!(session.step(launch(false)), None);
        assert_eq!(session.step(Step { left: LOOK * CORES, ..Step::default() }), None);
    }
}

#[test]
fn a_worker_that_no_longer_looks_ends() {
    let (mut stray, seconds) = (Stray::default(), Duration::from_secs);
    let mut look = |used| stray.look(LOOK, seconds(used), Told::default(), (MAX, CORES));
    // What it took before its session does not count.
    assert_eq!((look(1_000), look(1_006)), (None, None));
    assert_eq!(look(1_007), Some(Excess::Unseen));
}

#[test]
fn a_limit_that_changes_or_comes_back_judges_only_what_follows() {
    let mut session = Session::default();
    let leaves = Step { left: LOOK, ..Step::default() };
    session.step(launch(false));
    for max in 4..100 {
        assert_eq!(session.run(4, leaves), None);
        // The limit is another one for a while, and the worker has not looked for that one.
        let (used, max) = (session.doing.used + 50 * MAX, Duration::from_secs(max));
        assert_eq!(session.stray.look(LOOK, used, session.told, (max, CORES)), None);
        // Without a limit, the daemon forgets the session, and the worker does not look.
        session.doing.used += 100 * MAX;
        session.account.rest();
        if max.as_secs() % 2 == 0 {
            session.stray = Stray::default();
        }
    }
    assert_eq!(session.run(7, leaves), None);
    assert_eq!(session.run(4, leaves).map(|(_, why)| why), Some(Excess::Stray));
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

    /// A thread that takes a core while nothing is done for the client has the time of a kernel,
    /// whatever was before, and whether the client talks.
    #[test]
    fn threads_that_stay_end_their_session(
        before in prop::collection::vec((any::<bool>(), any::<bool>()), 0..50), talks: bool,
    ) {
        let mut session = Session::default();
        for (has_commands, has_pieces) in before {
            let time = |is_there| if is_there { LOOK } else { Duration::ZERO };
            let (commands, pieces) = (time(has_commands), time(has_pieces));
            prop_assert_eq!(session.step(Step { commands, pieces, ..Step::default() }), None);
        }
        let own = if talks { LOOK / 3 } else { Duration::ZERO };
        let (looks, why) = session.run(11, Step { left: LOOK, own, ..Step::default() }).unwrap();
        // Its core time, the sixteenth that is forgiven, and the look after the last command.
        prop_assert!(why == Excess::Stray && LOOK * looks > MAX, "{looks}");
    }
}
