use penstock_trial::Random;

use super::*;

const MAX: Duration = Duration::from_secs(SILENCE_S_DEFAULT);
/// Interval at which a waiting thread looks at most.
const LOOK_MS_MAX: u64 = 1_000;
const WORLDS: u64 = 4_000;

/// A peer that beats until it is stopped.
struct World {
    chance: Random,
    silence: Silence,
    start: Instant,
    now_ms: u64,
    /// Longest time between two beats.
    beats_within_ms: u64,
    next_beat_ms: u64,
    stopped_ms: u64,
}

impl World {
    fn new(seed: u64, beats_within_ms: u64) -> Self {
        let start = Instant::now();
        let (chance, silence) = (Random::new(seed), Silence::new(start, MAX));
        let (next_beat_ms, stopped_ms) = (0, u64::MAX);
        Self { chance, silence, start, now_ms: 0, beats_within_ms, next_beat_ms, stopped_ms }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.chance.index(usize::try_from(end).unwrap()) as u64
    }

    fn look_after(&mut self, pause_ms: u64) -> bool {
        self.now_ms += pause_ms;
        let mut heard = false;
        while self.next_beat_ms <= self.now_ms.min(self.stopped_ms) {
            heard = true;
            self.next_beat_ms += 1 + self.below(self.beats_within_ms);
        }
        self.silence.look(self.start + Duration::from_millis(self.now_ms), heard)
    }

    /// Looks as threads do that wait, with rests in which nobody looks.
    fn live_until(&mut self, end_ms: u64) {
        while self.now_ms < end_ms {
            let rests = self.below(50) == 0;
            let pause = self.below(if rests { 3_600_000 } else { LOOK_MS_MAX }) + 1;
            let at = self.now_ms;
            assert!(!self.look_after(pause), "lost while it lived, {pause} ms after {at} ms");
        }
    }
}

#[test]
fn a_peer_with_late_beats_is_never_lost_and_one_that_stops_is_soon() {
    for seed in 0..WORLDS {
        // A host that is overloaded beats much later than every 5 s.
        let mut world = World::new(seed, 25_000);
        world.live_until(60_000 + seed * 10);
        world.stopped_ms = world.now_ms;
        let latest_ms = world.now_ms + SILENCE_S_DEFAULT * 1_000 + LOOK_MS_MAX;
        while !world.look_after(1 + seed % LOOK_MS_MAX) {
            assert!(world.now_ms <= latest_ms, "seed {seed}: not known at {} ms", world.now_ms);
        }
    }
}

/// A program that is stopped for an hour takes none of that hour for silence, however often.
#[test]
fn the_own_absence_is_no_silence() {
    let start = Instant::now();
    let mut silence = Silence::new(start, MAX);
    let hour = Duration::from_secs(3_600);
    let absences = MAX.as_secs() / LOOK_COUNTS_MAX.as_secs();
    for turn in 1..u32::try_from(absences).unwrap() {
        assert!(!silence.look(start + hour * turn, false), "lost after {turn} hours");
    }
    assert!(!silence.look(start + hour * 100, true));
    assert!(!silence.look(start + hour * 101, false));
}

#[test]
fn a_clock_that_stands_still_is_no_silence() {
    let start = Instant::now();
    let mut silence = Silence::new(start, MAX);
    for _ in 0..1_000 {
        assert!(!silence.look(start, false));
    }
}
