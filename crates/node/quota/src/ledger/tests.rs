//! What the ledger promises, in examples and for random orders of events.

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn limits(text: &str) -> Limits {
    Limits::parse(text, Path::new("/l.toml")).unwrap()
}

const ALICE: User = User::Number(1);
const BOB: User = User::Number(2);

#[test]
fn sessions_are_counted_for_each_user_and_in_total() {
    let mut ledger = Ledger::new(limits("[total]\nsessions = 3\n[user.default]\nsessions = 2\n"));
    ledger.enter(1, ALICE);
    ledger.enter(2, ALICE);
    let refused = ledger.may_enter(&ALICE).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the limit sessions of user 1 is 2 (/l.toml, line 4): the user holds 2, and asks for 1 more"
    );
    ledger.may_enter(&BOB).unwrap();
    ledger.enter(3, BOB);
    let refused = ledger.may_enter(&BOB).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the limit sessions of all users together is 3 (/l.toml, line 2): they hold 3, and user 2 \
         asks for 1 more"
    );
    ledger.leave(1);
    ledger.may_enter(&ALICE).unwrap();
}

#[test]
fn the_built_in_limit_names_itself() {
    let mut ledger = Ledger::default();
    (0..256).for_each(|session| ledger.enter(session, ALICE));
    let refused = ledger.may_enter(&BOB).unwrap_err().to_string();
    assert!(refused.contains("(the built-in default SESSIONS_PER_DAEMON_MAX)"), "{refused}");
}

#[test]
fn memory_is_that_of_all_sessions_of_a_user() {
    let mut ledger = Ledger::new(limits("[user.1]\ndevice_memory = \"1G\"\n"));
    (1..=2).for_each(|session| ledger.enter(session, ALICE));
    ledger.enter(3, BOB);
    let device = Resource::DeviceMemory;
    assert_eq!(ledger.first_loan(1, device), Loan { amount: 0, spare_max: 0 });
    let loan = ledger.borrow(1, device, 600 << 20).unwrap();
    assert_eq!(loan, Loan { amount: 600 << 20, spare_max: 0 });
    let refused = ledger.borrow(2, device, 600 << 20).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the limit device_memory of user 1 is 1 GiB (/l.toml, line 2): the user holds 600 MiB, and \
         asks for 600 MiB more"
    );
    ledger.borrow(3, device, 600 << 30).unwrap();
    ledger.give_back(1, device, 200 << 20);
    ledger.borrow(2, device, 600 << 20).unwrap();
    ledger.leave(2);
    ledger.borrow(1, device, 600 << 20).unwrap();
}

#[test]
fn a_session_without_a_limit_asks_rarely() {
    let mut ledger = Ledger::default();
    ledger.enter(1, ALICE);
    let (mut free, mut asked) = (ledger.first_loan(1, Resource::HostMemory).amount, 0);
    for _ in 0..100_000 {
        if free < 1 << 20 {
            free += ledger.borrow(1, Resource::HostMemory, 1 << 20).unwrap().amount;
            asked += 1;
        }
        free -= 1 << 20;
    }
    assert!(asked < 60, "{asked} questions for 100,000 buffers of 1 MiB");
}

#[test]
fn what_flows_is_divided_among_the_sessions() {
    let text = "[total]\nbytes_in_flight = 1000\n[user.1]\nbytes_in_flight = 600\n";
    let mut ledger = Ledger::new(limits(text));
    ledger.enter(1, ALICE);
    let part = |ledger: &Ledger, session| ledger.flow(session, Limit::BytesInFlight).unwrap();
    assert_eq!(part(&ledger, 1).max, 600);
    ledger.enter(2, ALICE);
    assert_eq!(part(&ledger, 1).max, 300);
    assert_eq!(
        part(&ledger, 1).said,
        "the limit bytes_in_flight of the user, 600 B for 2 sessions (/l.toml, line 4)"
    );
    (3..=5).for_each(|session| ledger.enter(session, BOB));
    assert_eq!((part(&ledger, 1).max, part(&ledger, 5).max), (200, 200));
    assert!(part(&ledger, 5).said.contains("of all users together, 1000 B for 5 sessions"));
    let mut none = Ledger::default();
    none.enter(1, ALICE);
    assert_eq!(none.flow(1, Limit::BytesInFlight), None);
}

#[test]
fn times_are_those_of_the_user() {
    let mut ledger = Ledger::new(limits("[user.default]\nkernel_time_s = 9\n"));
    ledger.enter(1, ALICE);
    let time = ledger.time(1, Limit::KernelTime).unwrap();
    assert_eq!((time.max, ledger.time(1, Limit::IdleTime)), (9, None));
    assert_eq!(time.said, "the limit kernel_time_s of user 1 is 9 s (/l.toml, line 2)");
}

#[test]
fn new_limits_leave_what_is_held() {
    let mut ledger = Ledger::default();
    ledger.enter(1, ALICE);
    ledger.borrow(1, Resource::DeviceMemory, 1 << 30).unwrap();
    assert_eq!(ledger.spare_max(1, Resource::DeviceMemory), u64::MAX);
    ledger.set_limits(limits("[user.default]\ndevice_memory = 1\n"));
    assert_eq!(ledger.spare_max(1, Resource::DeviceMemory), 0);
    ledger.borrow(1, Resource::DeviceMemory, 1).unwrap_err();
    let row = |row: &Row| row.user == Some(ALICE) && row.limit == Limit::DeviceMemory;
    let rows = ledger.report();
    let held = rows.iter().find(|it| row(it)).unwrap().held;
    assert_eq!(held, Some((1 << 30) + (16 << 20)));
}

#[test]
fn a_report_names_all_limits_that_exist() {
    let mut ledger = Ledger::new(limits("[user.7]\nsessions = 1\n"));
    ledger.enter(1, ALICE);
    let rows = ledger.report();
    for limit in Limit::ALL {
        let total = rows.iter().any(|row| row.scope == Scope::Total && row.limit == limit);
        assert_eq!(total, limit.has_total(), "{limit}");
        for user in [ALICE, User::Number(7)] {
            let of_user = |row: &&Row| row.user.as_ref() == Some(&user) && row.limit == limit;
            assert_eq!(rows.iter().filter(of_user).count(), 1);
        }
        assert!(!limit.enforcement().is_empty());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Enter(u32, u32),
    Leave(u32),
    Borrow(u32, usize, u64),
    GiveBack(u32, usize, u64),
    /// Sets the limit of device memory of each user and of all users.
    Limit(u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (session, resource, amount) = (0..6_u32, 0..Resource::ALL.len(), 1..400_u64);
    prop_oneof![
        (session.clone(), 0..3_u32).prop_map(|(session, user)| Step::Enter(session, user)),
        session.clone().prop_map(Step::Leave),
        (session.clone(), resource.clone(), amount.clone())
            .prop_map(|(session, what, amount)| Step::Borrow(session, what, amount)),
        (session, resource, amount)
            .prop_map(|(session, what, amount)| Step::GiveBack(session, what, amount)),
        (1..600_u64, 1..900_u64).prop_map(|(user, all)| Step::Limit(user, all)),
    ]
}

fn rules(user: u64, all: u64) -> Limits {
    let set = |amount: u64| {
        format!(
            "sessions = {}\ndevice_memory = {amount}\nhost_memory = {amount}\nobjects = {amount}\n",
            amount.min(256)
        )
    };
    limits(&format!("[total]\n{}[user.default]\n{}", set(all), set(user)))
}

/// What a session holds, as a plain list: the session, its user, and the amounts.
type Held = Vec<(u32, (u32, [u64; 3]))>;

fn sum(held: &Held, user: Option<u32>, what: usize) -> u64 {
    let counts = held.iter().filter(|(_, (it, _))| user.is_none_or(|user| user == *it));
    counts.map(|(_, (_, amounts))| amounts[what]).sum()
}

proptest! {
    /// No order of events gets a user more than its limit, or refuses what fits. What a session
    /// held is free when it has ended.
    #[test]
    fn nobody_gets_more_than_the_limits(steps in vec(step(), 1..200)) {
        let (mut user_max, mut all_max) = (300, 500);
        let mut ledger = Ledger::new(rules(user_max, all_max));
        let mut held: Held = Vec::new();
        for step in steps {
            match step {
                Step::Enter(session, user) => {
                    let allowed = ledger.may_enter(&User::Number(user)).is_ok();
                    let of_user = held.iter().filter(|(_, (it, _))| *it == user).count() as u64;
                    let fits = of_user < user_max.min(256)
                        && (held.len() as u64) < all_max.min(256);
                    prop_assert_eq!(allowed, fits);
                    if allowed && held.iter().all(|(it, _)| *it != session) {
                        ledger.enter(session, User::Number(user));
                        held.push((session, (user, [0; 3])));
                    }
                }
                Step::Leave(session) => {
                    ledger.leave(session);
                    held.retain(|(it, _)| *it != session);
                }
                Step::Borrow(session, what, amount) => {
                    let Some((user, _)) = held.iter().find(|(it, _)| *it == session).map(|it| it.1)
                    else {
                        prop_assert_eq!(
                            ledger.borrow(session, Resource::ALL[what], amount),
                            Ok(Loan::default())
                        );
                        continue;
                    };
                    let fits = sum(&held, Some(user), what) + amount <= user_max
                        && sum(&held, None, what) + amount <= all_max;
                    match ledger.borrow(session, Resource::ALL[what], amount) {
                        Ok(loan) => {
                            prop_assert!(fits && loan.amount >= amount);
                            let entry = held.iter_mut().find(|(it, _)| *it == session).unwrap();
                            entry.1.1[what] += loan.amount;
                            prop_assert!(sum(&held, Some(user), what) <= user_max);
                            prop_assert!(sum(&held, None, what) <= all_max);
                        }
                        Err(refusal) => {
                            prop_assert!(!fits);
                            let text = refusal.to_string();
                            prop_assert!(text.contains(Resource::ALL[what].limit().name()));
                            prop_assert!(text.contains("(/l.toml, line "));
                        }
                    }
                }
                Step::GiveBack(session, what, amount) => {
                    ledger.give_back(session, Resource::ALL[what], amount);
                    if let Some(entry) = held.iter_mut().find(|(it, _)| *it == session) {
                        entry.1.1[what] = entry.1.1[what].saturating_sub(amount);
                    }
                }
                Step::Limit(user, all) => {
                    (user_max, all_max) = (user, all);
                    ledger.set_limits(rules(user, all));
                }
            }
        }
        for (session, _) in &held {
            ledger.leave(*session);
        }
        for row in ledger.report() {
            prop_assert_eq!(row.held.unwrap_or_default(), 0);
        }
    }

    /// The parts of the sessions together are at most the limit.
    #[test]
    fn parts_of_a_flow_add_up(users in vec(0..3_u32, 1..20), user_max in 100..1_000_u64,
                              all_max in 100..1_000_u64) {
        let name = "commands_in_flight";
        let text = format!("[total]\n{name} = {all_max}\n[user.default]\n{name} = {user_max}\n");
        let mut ledger = Ledger::new(limits(&text));
        for (session, user) in (0..).zip(&users) {
            ledger.enter(session, User::Number(*user));
        }
        let part = |session| ledger.flow(session, Limit::CommandsInFlight).unwrap().max;
        let sessions = || (0..).zip(&users);
        prop_assert!(sessions().map(|(session, _)| part(session)).sum::<u64>() <= all_max);
        for user in 0..3 {
            let own = sessions().filter(|(_, it)| **it == user);
            prop_assert!(own.map(|(session, _)| part(session)).sum::<u64>() <= user_max);
        }
    }
}
