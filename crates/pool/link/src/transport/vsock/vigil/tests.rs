use penstock_trial::Random;

use super::*;

/// Longest time until a loss is known: see [`ANSWER_MAX`]. The last look adds one interval.
const ASKED_LOSS_MAX_MS: u64 = 8_000;
/// Interval at which a waiting thread looks at most.
const LOOK_MS_MAX: u64 = 1_000;
const WORLDS: u64 = 4_000;

/// What the other end does while it lives.
#[derive(Clone, Copy)]
struct Habits {
    /// Longest time until the machine answers a question, or `None` if it never answers.
    answers_within_ms: Option<u64>,
    /// Longest time between two messages, or `None` for a program that is stopped.
    speaks_within_ms: Option<u64>,
}

/// A connection whose other end lives until `gone_ms`.
struct World {
    chance: Random,
    vigil: Vigil,
    start: Instant,
    now_ms: u64,
    habits: Habits,
    gone_ms: u64,
    next_word_ms: u64,
    answer_ms: Option<u64>,
}

impl World {
    fn new(seed: u64, habits: Habits) -> Self {
        let start = Instant::now();
        Self {
            chance: Random::new(seed),
            vigil: Vigil::new(start),
            start,
            now_ms: 0,
            habits,
            gone_ms: u64::MAX,
            next_word_ms: 0,
            answer_ms: None,
        }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.chance.index(usize::try_from(end).unwrap()) as u64
    }

    /// Looks once, after `pause_ms`. Returns whether the other end counts as gone.
    fn look_after(&mut self, pause_ms: u64) -> bool {
        self.now_ms += pause_ms;
        let mut heard = false;
        if let Some(most) = self.habits.speaks_within_ms {
            while self.next_word_ms <= self.now_ms.min(self.gone_ms) {
                heard = true;
                self.next_word_ms += 1 + self.below(most);
            }
        }
        let answered = self.answer_ms.filter(|&at| at <= self.now_ms);
        let answer = answered.map(|_| Answer::Lives);
        let now = self.start + Duration::from_millis(self.now_ms);
        let deeds = self.vigil.look(now, Signs { heard, answer });
        if !self.vigil.is_asking() {
            self.answer_ms = None;
        }
        if deeds.ask {
            assert!(self.vigil.is_asking() && !deeds.is_lost);
            let within = self.habits.answers_within_ms;
            let late = within.map(|most| self.below(most));
            let at = late.map(|late| self.now_ms + late);
            self.answer_ms = at.filter(|&at| at <= self.gone_ms);
        }
        deeds.is_lost
    }

    /// Looks until `end_ms` as threads do that wait, with rests in which nobody looks. The machine
    /// lives at least until the first question is settled.
    fn live_until(&mut self, end_ms: u64) {
        while self.now_ms < end_ms || self.vigil.refusals == Refusals::NotAsked {
            let rests = self.below(50) == 0;
            let pause = self.below(if rests { 3_600_000 } else { LOOK_MS_MAX }) + 1;
            let at = self.now_ms;
            assert!(!self.look_after(pause), "lost while it lived, {pause} ms after {at} ms");
        }
    }

    /// Ends the other end and returns the time in ms after which this is known, if within `max_ms`.
    fn end(&mut self, max_ms: u64) -> Option<u64> {
        self.gone_ms = self.now_ms;
        self.answer_ms = None;
        while self.now_ms - self.gone_ms <= max_ms {
            let pause = self.below(LOOK_MS_MAX) + 1;
            if self.look_after(pause) {
                return Some(self.now_ms - self.gone_ms);
            }
        }
        None
    }
}

/// Answers that come just in time: a look may be one interval late.
const IN_TIME: Option<u64> = Some(2_900);

#[test]
fn a_machine_that_answers_is_never_lost_and_one_that_vanished_is_soon() {
    for seed in 0..WORLDS {
        // Busy and idle programs, and those that a debugger has stopped.
        let speaks_within_ms = [Some(500), Some(60_000), None][(seed % 3) as usize];
        let habits = Habits { answers_within_ms: IN_TIME, speaks_within_ms };
        let mut world = World::new(seed, habits);
        world.live_until(20_000 + seed * 10);
        let known = world.end(ASKED_LOSS_MAX_MS);
        assert!(known.is_some(), "seed {seed}: not known after {ASKED_LOSS_MAX_MS} ms");
    }
}

#[test]
fn the_silence_of_a_machine_that_never_answers_means_nothing() {
    for seed in 0..WORLDS {
        let habits = Habits { answers_within_ms: None, speaks_within_ms: None };
        World::new(seed, habits).live_until(200_000);
    }
}

/// A machine that was too busy to answer when the connection was made.
#[test]
fn a_machine_that_answers_only_later_is_asked_again() {
    for seed in 0..WORLDS {
        let habits = Habits { answers_within_ms: None, speaks_within_ms: None };
        let mut world = World::new(seed, habits);
        world.live_until(10_000);
        assert!(matches!(world.vigil.refusals, Refusals::DoNotCome { .. }));
        world.habits.answers_within_ms = IN_TIME;
        // Two times of ASK_AGAIN with a look after half a second on average, if the machine has
        // missed the question of the first one.
        let looks = (0..1_000).take_while(|_| {
            world.live_until(world.now_ms + 1);
            world.vigil.refusals != Refusals::Come
        });
        assert!(looks.count() < 1_000, "seed {seed}: the machine is not asked again");
        let known = world.end(ASKED_LOSS_MAX_MS);
        assert!(known.is_some(), "seed {seed}: not known after {ASKED_LOSS_MAX_MS} ms");
    }
}

#[test]
fn a_lack_on_this_side_says_nothing_about_the_machine() {
    let start = Instant::now();
    let mut vigil = Vigil::new(start);
    for second in 1..100 {
        let now = start + Duration::from_secs(second);
        assert!(vigil.look(now, Signs::default()).ask, "second {second}");
        assert!(!vigil.could_not_ask(Answer::Unclear, now));
    }
    assert!(vigil.could_not_ask(Answer::Gone, start + Duration::from_secs(100)));
}

#[test]
fn a_quiet_connection_is_poked_at_an_interval() {
    let start = Instant::now();
    let mut vigil = Vigil::new(start);
    let pokes = |second: &u64| {
        let answer = vigil.is_asking().then_some(Answer::Lives);
        vigil.look(start + Duration::from_secs(*second), Signs { heard: false, answer }).poke
    };
    let poked: Vec<u64> = (1..12).filter(pokes).collect();
    // A look that takes an answer does nothing more, and the answer ends the silence.
    assert_eq!(poked, [5, 9]);
}
