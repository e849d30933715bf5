//! A device in a few lines, whose sessions want what random programs want.

use proptest::prelude::*;

use super::*;

const TICK: Duration = Duration::from_millis(10);

/// One session of the simulated device.
#[derive(Clone, Debug)]
struct Session {
    user: u32,
    /// Times at which it wants the device, in looks: the period and the part of it that is busy.
    period: u32,
    busy: u32,
    /// Looks for which a launch runs on once it has begun.
    length: u32,
    /// The look at which it ends.
    dies_at: u32,
    /// Whether it says that it wants the device, and never uses it.
    lies: bool,
    /// Whether it says that it does not want the device, and uses it.
    hides: bool,
    left: u32,
}

impl Session {
    fn busy(user: u32) -> Self {
        let (period, busy, length, dies_at) = (1, 1, 1, u32::MAX);
        Self { user, period, busy, length, dies_at, lies: false, hides: false, left: 0 }
    }

    fn wants(&self, look: u32) -> bool {
        look < self.dies_at && look % self.period < self.busy
    }
}

struct Device {
    fair: Fair,
    cores: u32,
    sessions: Vec<Session>,
    /// Time that each user has got.
    got: BTreeMap<u32, Duration>,
    look: u32,
}

fn user(number: u32) -> User {
    User::Number(number)
}

impl Device {
    fn new(means: Means, cores: u32, sessions: Vec<Session>) -> Self {
        Self { fair: Fair::new(means, cores), cores, sessions, got: BTreeMap::new(), look: 0 }
    }

    /// Shares one look's time of the device as Linux or a driver does, between sessions and not
    /// between users. Each session uses one core at most.
    fn step(&mut self, share: &dyn Fn(&User) -> u64) {
        let look = self.look;
        self.look += 1;
        let is_held = |fair: &Fair, it: &Session| fair.is_held(&user(it.user));
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for (index, it) in self.sessions.iter_mut().enumerate().filter(|(_, it)| !it.lies) {
            let (wants, held) = (it.wants(look), is_held(&self.fair, it));
            if held && self.fair.means() == Means::Turns {
                // What has begun goes on.
                if it.left > 0 && look < it.dies_at {
                    it.left -= 1;
                    first.push(index);
                }
                continue;
            }
            if wants || it.left > 0 {
                it.left = if it.left == 0 { it.length - 1 } else { it.left - 1 };
                if held { last.push(index) } else { first.push(index) }
            }
        }
        let all = TICK * self.cores;
        let mut times = vec![Duration::ZERO; self.sessions.len()];
        let mut left = all;
        for group in [first, last] {
            let count = u32::try_from(group.len()).unwrap();
            let each = if count == 0 { TICK } else { TICK.min(left / count) };
            for index in group {
                times[index] = each;
                left -= each;
            }
        }
        let uses: Vec<Use> = self
            .sessions
            .iter()
            .zip(&times)
            .filter(|(it, _)| look < it.dies_at)
            .map(|(it, time)| {
                *self.got.entry(it.user).or_default() += *time;
                let is_wanted = !it.hides && (it.lies || it.wants(look) || it.left > 0);
                Use { user: user(it.user), is_wanted, time: *time }
            })
            .collect();
        self.fair.look(TICK, &uses, share);
    }

    fn run(&mut self, looks: u32) -> &mut Self {
        for _ in 0..looks {
            self.step(&|_| 1);
        }
        self
    }

    fn part(&self, number: u32) -> f64 {
        let all: Duration = self.got.values().sum();
        self.got[&number].as_secs_f64() / all.as_secs_f64()
    }
}

fn busy(users: &[u32]) -> Vec<Session> {
    users.iter().map(|user| Session::busy(*user)).collect()
}

#[test]
fn seven_sessions_of_a_user_get_as_much_as_the_one_of_another() {
    for (means, cores) in [(Means::Priority, 1), (Means::Priority, 2), (Means::Turns, 1)] {
        let mut device = Device::new(means, cores, busy(&[1, 2, 2, 2, 2, 2, 2, 2]));
        let part = device.run(300).part(1);
        assert!((0.45..0.55).contains(&part), "{means:?} of {cores} cores: {part}");
    }
}

#[test]
fn threads_that_no_worker_tells_of_are_held_back() {
    let hidden = Session { hides: true, ..Session::busy(2) };
    let mut sessions = vec![Session::busy(1)];
    sessions.resize(8, hidden);
    for cores in [1, 2] {
        let mut device = Device::new(Means::Priority, cores, sessions.clone());
        let part = device.run(300).part(1);
        assert!((0.45..0.55).contains(&part), "{cores} cores: {part}");
    }
}

#[test]
fn workers_at_rest_want_nothing() {
    let mut fair = Fair::new(Means::Priority, 2);
    let rest = |number| Use { user: user(number), is_wanted: false, time: TICK / 1_000 };
    for look in 0..1_000 {
        fair.look(TICK, &[rest(1), rest(2)], &|_| 1);
        assert!(!fair.is_wanted() || TICK * look <= QUIET);
    }
}

#[test]
fn a_share_is_a_share_of_the_time() {
    let mut device = Device::new(Means::Priority, 2, busy(&[1, 1, 1, 2, 2, 2]));
    for _ in 0..300 {
        device.step(&|it| if *it == user(1) { 3 } else { 1 });
    }
    let part = device.part(1);
    assert!((0.7..0.8).contains(&part), "{part}");
}

#[test]
fn who_is_alone_is_never_held_back() {
    let mut device = Device::new(Means::Turns, 1, busy(&[1, 1, 1]));
    for _ in 0..100 {
        device.run(1);
        assert!(!device.fair.is_held(&user(1)) && !device.fair.is_contended());
    }
    assert!(device.fair.is_wanted());
}

#[test]
fn who_comes_back_is_served_at_once_and_claims_no_time_of_its_pause() {
    let mut late = Session::busy(1);
    (late.period, late.busy) = (1_000, 1_000);
    let mut device = Device::new(Means::Priority, 2, busy(&[2, 2, 2, 2, 2, 2, 2]));
    device.run(500);
    device.sessions.push(late);
    device.run(1);
    assert!(device.fair.is_held(&user(2)), "held back at the first look");
    let before = device.got[&2];
    device.run(300);
    let later = device.got[&2].saturating_sub(before);
    // Three seconds of two cores.
    assert!(later > Duration::from_millis(2_800), "{later:?}");
}

#[test]
fn a_session_whose_commands_wait_for_something_else_holds_nobody_back() {
    let waiting = Session { lies: true, ..Session::busy(1) };
    for means in [Means::Priority, Means::Turns] {
        let mut device = Device::new(means, 2, vec![waiting.clone(), Session::busy(2)]);
        device.run(100);
        assert!(!device.fair.is_contended() && device.fair.held().is_empty());
    }
}

#[test]
fn a_worker_that_lies_stops_nobody() {
    // It says again and again that it begins to use the device.
    let lies = Session { lies: true, ..Session::busy(1) };
    let mut device = Device::new(Means::Turns, 1, vec![lies, Session::busy(2)]);
    for look in 0..1_000 {
        device.sessions[0].dies_at = if look % 2 == 0 { u32::MAX } else { 0 };
        device.run(1);
    }
    let got = device.got[&2];
    assert!(got > Duration::from_secs(2), "less than a quarter of its part: {got:?} of 10 s");
}

#[test]
fn a_kernel_without_end_delays_nobody_for_long() {
    let endless = Session { length: u32::MAX, ..Session::busy(1) };
    let mut device = Device::new(Means::Turns, 1, vec![endless, Session::busy(2)]);
    let mut held = 0;
    for _ in 0..1_000 {
        device.run(1);
        held = if device.fair.is_held(&user(2)) { held + 1 } else { 0 };
        assert!(TICK * held <= HELD_MAX + TICK);
    }
    // The device gives it half of the time, because two sessions run.
    assert!(device.part(2) > 0.45, "{}", device.part(2));
}

#[test]
fn users_without_sessions_are_not_kept() {
    let mut fair = Fair::new(Means::Priority, 1);
    for number in 0..10 * u32::try_from(REMEMBERED_MAX).unwrap() {
        let one = Use { user: user(number), is_wanted: true, time: TICK };
        let other = Use { user: user(u32::MAX), is_wanted: true, time: Duration::ZERO };
        fair.look(TICK, &[one, other], &|_| 1);
        assert!(fair.accounts.len() <= REMEMBERED_MAX + 3);
    }
}

#[test]
fn who_connects_anew_keeps_its_lead() {
    let mut device = Device::new(Means::Priority, 1, busy(&[1, 2, 2, 2, 2, 2]));
    for look in 0_u32..300 {
        // All its sessions end and come back.
        for it in &mut device.sessions[1..] {
            it.dies_at = if look % 10 == 9 { 0 } else { u32::MAX };
        }
        device.run(1);
    }
    // It is free for one look after each return. Without sharing the part is 1/6.
    assert!(device.part(1) > 0.4, "{}", device.part(1));
}

fn session() -> impl Strategy<Value = Session> {
    let times = (1..20_u32, 1..20_u32, 1..30_u32, 0..600_u32);
    (0..4_u32, times, prop::bool::weighted(0.1)).prop_map(
        |(user, (period, busy, length, dies_at), lies)| {
            let dies_at = if dies_at > 300 { u32::MAX } else { dies_at };
            Session { user, period, busy, length, dies_at, lies, hides: false, left: 0 }
        },
    )
}

proptest! {
    /// Whatever sessions do and whenever they end: somebody who contends may always go on, nobody
    /// waits without a competitor or for longer than [`HELD_MAX`], and no user is ahead by more
    /// than [`LEAD_MAX`].
    #[test]
    fn somebody_may_always_go_on(
        sessions in prop::collection::vec(session(), 1..12),
        turns in any::<bool>(),
        cores in 1..4_u32,
    ) {
        let means = if turns { Means::Turns } else { Means::Priority };
        let mut device = Device::new(means, cores, sessions);
        let mut held_for = [0_u32; 4];
        for _ in 0..600 {
            device.run(1);
            let contending: Vec<_> =
                device.fair.accounts.values().filter(|it| it.contends).collect();
            let free = contending.iter().any(|it| it.held_since.is_none());
            prop_assert!(contending.is_empty() || free, "all are held back");
            if contending.len() < 2 {
                prop_assert!(device.fair.held().is_empty(), "held back without a competitor");
            }
            let clocks: Vec<_> = contending.iter().map(|it| it.clock).collect();
            let (least, most) = (clocks.iter().min(), clocks.iter().max());
            if let (Some(least), Some(most)) = (least, most) {
                prop_assert!(most - least <= LEAD_MAX.as_nanos() * PARTS);
            }
            for (number, held_for) in (0..).zip(&mut held_for) {
                *held_for = if device.fair.is_held(&user(number)) { *held_for + 1 } else { 0 };
                let bound = if turns { HELD_MAX + TICK } else { Duration::MAX };
                prop_assert!(TICK * *held_for <= bound);
            }
        }
    }

    /// Users that always want the device get equal parts of it, whatever the number of their
    /// sessions and the length of their launches.
    #[test]
    fn who_always_wants_the_device_gets_an_equal_part(
        counts in prop::collection::vec(1..9_usize, 2..4),
        length in 1..8_u32,
        turns in any::<bool>(),
    ) {
        let users = (0..).zip(&counts);
        let sessions = users.flat_map(|(user, count)| {
            let one = Session { length, ..Session::busy(user) };
            std::iter::repeat_n(one, *count)
        });
        let means = if turns { Means::Turns } else { Means::Priority };
        let mut device = Device::new(means, 1, sessions.collect());
        device.run(600);
        let fair = 1.0 / counts.len() as f64;
        for number in (0..).take(counts.len()) {
            let part = device.part(number);
            prop_assert!((part - fair).abs() < 0.2 * fair, "{part} instead of {fair}");
        }
    }
}
