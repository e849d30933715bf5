//! What this worker's session may have: what the daemon has lent to it, and the limits that the
//! session applies itself.
//!
//! Memory and objects come out of a pot. A session of no limit has so much in its pots that it
//! rarely asks. If a pot is empty, the thread asks the daemon and waits for the answer, which
//! another thread of the worker receives.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use penstock_process::Lock;
use penstock_quota::{Cap, Loan, Resource, Terms};
use penstock_wire::limits;

use super::turns::Turns;
use crate::answers::{ANSWER_MAX, Answers};

/// The daemon, as a source of loans.
pub(crate) trait Lender: Send + Sync {
    /// Asks for at least `least`. The answer comes through [`Allowance::answered`] with the same
    /// number. Returns `false` if nobody can be asked.
    fn borrow(&self, question: u64, resource: Resource, least: u64) -> bool;

    fn give_back(&self, resource: Resource, amount: u64);
}

/// The daemon's answer: a loan, or the reason why there is none.
pub(crate) type Answer = Result<Loan, String>;

/// Something was refused; the text names the limit and who set it.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) String);

/// What one session may have.
pub(crate) struct Allowance {
    lender: Option<Box<dyn Lender>>,
    /// By the index of the resource in [`Resource::ALL`].
    pots: [Pot; Resource::ALL.len()],
    /// Held by the thread that asks the daemon.
    turn: Lock<()>,
    answers: Answers<Answer>,
    bytes_max: AtomicU64,
    commands_max: AtomicU64,
    /// Longest time of a kernel in s; 0 for no limit.
    kernel_max: AtomicU64,
    terms: Lock<Terms>,
    /// The devices that it must leave to other users for now.
    pub(crate) turns: Arc<Turns>,
}

#[derive(Debug, Default)]
struct Pot {
    /// What the session has and does not use.
    free: AtomicU64,
    spare_max: AtomicU64,
    /// Whether a refusal was told.
    told: AtomicBool,
}

impl Allowance {
    /// Makes the allowance of a session that no daemon watches over.
    pub(crate) fn unlimited() -> Self {
        let all = Loan { amount: u64::MAX / 2, spare_max: u64::MAX };
        Self::new(None, [all; Resource::ALL.len()], Terms::default())
    }

    pub(crate) fn new(
        lender: Option<Box<dyn Lender>>,
        loans: [Loan; Resource::ALL.len()],
        terms: Terms,
    ) -> Self {
        let pots = loans.map(|loan| Pot {
            free: AtomicU64::new(loan.amount),
            spare_max: AtomicU64::new(loan.spare_max),
            told: AtomicBool::new(false),
        });
        let allowance = Self {
            lender,
            pots,
            turn: Lock::default(),
            answers: Answers::new(1, ANSWER_MAX),
            bytes_max: AtomicU64::new(limits::STAGED_BYTES_MAX),
            commands_max: AtomicU64::new(limits::COMMANDS_IN_FLIGHT_MAX),
            kernel_max: AtomicU64::new(0),
            terms: Lock::default(),
            turns: Arc::default(),
        };
        allowance.apply(terms);
        allowance
    }

    /// Takes some of a resource out of its pot. Asks the daemon if the pot has too little.
    pub(crate) fn take(&self, resource: Resource, amount: u64) -> Result<(), Refused> {
        let Some(pot) = self.pots.get(resource as usize) else { return Ok(()) };
        if pot.take(amount) {
            return Ok(());
        }
        let _turn = self.turn.lock();
        // Another thread may have borrowed meanwhile.
        let had = pot.free.swap(0, Ordering::Relaxed);
        let Some(least) = amount.checked_sub(had).filter(|least| *least > 0) else {
            pot.free.fetch_add(had - amount, Ordering::Relaxed);
            return Ok(());
        };
        match self.ask(resource, least) {
            Ok(loan) if loan.amount >= least => {
                pot.spare_max.store(loan.spare_max, Ordering::Relaxed);
                pot.free.fetch_add(loan.amount - least, Ordering::Relaxed);
                Ok(())
            }
            Ok(loan) => {
                self.give(resource, had.saturating_add(loan.amount));
                Err(Refused("the daemon does not know this session".to_owned()))
            }
            Err(why) => {
                self.give(resource, had);
                Err(Refused(why))
            }
        }
    }

    /// Puts something back into its pot, and from there gives back to the daemon what the session
    /// may not keep.
    pub(crate) fn give(&self, resource: Resource, amount: u64) {
        let Some(pot) = self.pots.get(resource as usize) else { return };
        let free = pot.free.fetch_add(amount, Ordering::Relaxed).saturating_add(amount);
        if free > pot.spare_max.load(Ordering::Relaxed) {
            self.trim(resource, pot);
        }
    }

    /// Applies new limits.
    pub(crate) fn apply(&self, terms: Terms) {
        let max = |cap: &Option<Cap>| cap.as_ref().map_or(u64::MAX, |cap| cap.max);
        let bytes = max(&terms.bytes_in_flight).min(limits::STAGED_BYTES_MAX);
        self.bytes_max.store(bytes, Ordering::Relaxed);
        let commands = max(&terms.commands_in_flight).min(limits::COMMANDS_IN_FLIGHT_MAX);
        self.commands_max.store(commands, Ordering::Relaxed);
        let kernel = terms.kernel_time.as_ref().map_or(0, |cap| cap.max);
        self.kernel_max.store(kernel, Ordering::Relaxed);
        for ((resource, pot), spare) in
            Resource::ALL.into_iter().zip(&self.pots).zip(terms.spare_max)
        {
            // A worker without a daemon keeps everything.
            if self.lender.is_some() {
                pot.spare_max.store(spare, Ordering::Relaxed);
                self.trim(resource, pot);
            }
        }
        *self.terms.lock() = terms;
    }

    /// Takes the daemon's answer to a question.
    pub(crate) fn answered(&self, number: u64, resource: Resource, answer: Answer) {
        // Nobody waits for a loan that comes back.
        if let Some(Ok(loan)) = self.answers.take(number, answer) {
            self.give(resource, loan.amount);
        }
    }

    /// Most bytes that the session may hold between link and device.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Most commands that may be on their way to the devices.
    pub(crate) fn commands_max(&self) -> u64 {
        self.commands_max.load(Ordering::Relaxed)
    }

    /// Whether kernels have a limit of time, so that the end of each must be seen.
    pub(crate) fn watches_kernels(&self) -> bool {
        self.kernel_max.load(Ordering::Relaxed) != 0
    }

    /// Returns whether a refusal is to be told. A program may try the same thing many times.
    pub(crate) fn tells(&self, resource: Resource) -> bool {
        self.pots.get(resource as usize).is_some_and(|pot| !pot.told.swap(true, Ordering::Relaxed))
    }

    /// Returns the limits that the session applies itself.
    pub(crate) fn terms(&self) -> Terms {
        self.terms.lock().clone()
    }

    fn trim(&self, resource: Resource, pot: &Pot) {
        let spare = pot.spare_max.load(Ordering::Relaxed);
        let above = |free: u64| (free > spare).then_some(spare);
        if let Ok(free) = pot.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, above)
            && let Some(lender) = &self.lender
        {
            lender.give_back(resource, free - spare);
        }
    }

    /// Asks the daemon, and waits for its answer. Only the thread that has the turn may ask.
    fn ask(&self, resource: Resource, least: u64) -> Answer {
        self.answers.ask(|number| {
            let lender = self.lender.as_ref();
            let is_asked = lender.is_some_and(|it| it.borrow(number, resource, least));
            is_asked.then_some(()).ok_or_else(|| "the daemon cannot be asked for more".to_owned())
        })?
    }
}

impl Pot {
    fn take(&self, amount: u64) -> bool {
        let less = |free: u64| free.checked_sub(amount);
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

impl fmt::Debug for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allowance").finish_non_exhaustive()
    }
}

/// Part of a resource that is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    allowance: Arc<Allowance>,
    resource: Resource,
    amount: u64,
}

impl Taken {
    pub(crate) fn new(
        allowance: &Arc<Allowance>,
        resource: Resource,
        amount: u64,
    ) -> Result<Self, Refused> {
        allowance.take(resource, amount)?;
        Ok(Self { allowance: allowance.clone(), resource, amount })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.allowance.give(self.resource, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{OnceLock, Weak};

    use penstock_quota::{Ledger, Limits, User};

    use super::*;

    const MEMORY: Resource = Resource::DeviceMemory;

    /// A daemon that answers on another thread, from a ledger with one session.
    #[derive(Clone)]
    struct Bank {
        ledger: Arc<Lock<Ledger>>,
        of: Arc<OnceLock<Weak<Allowance>>>,
    }

    impl Lender for Bank {
        fn borrow(&self, question: u64, resource: Resource, least: u64) -> bool {
            let bank = self.clone();
            std::thread::spawn(move || {
                let answer = bank.ledger.lock().borrow(1, resource, least);
                let allowance = bank.of.get().and_then(Weak::upgrade).unwrap();
                allowance.answered(question, resource, answer.map_err(|it| it.to_string()));
            });
            true
        }

        fn give_back(&self, resource: Resource, amount: u64) {
            self.ledger.lock().give_back(1, resource, amount);
        }
    }

    fn session(text: &str) -> (Arc<Allowance>, Bank) {
        let limits = Limits::parse(text, std::path::Path::new("/l.toml")).unwrap();
        let mut ledger = Ledger::new(limits);
        ledger.enter(1, User::Number(7));
        let loans = Resource::ALL.map(|resource| ledger.first_loan(1, resource));
        let terms = ledger.terms(1);
        let bank = Bank { ledger: Arc::new(Lock::new(ledger)), of: Arc::default() };
        let allowance = Arc::new(Allowance::new(Some(Box::new(bank.clone())), loans, terms));
        bank.of.set(Arc::downgrade(&allowance)).unwrap();
        (allowance, bank)
    }

    fn lent(bank: &Bank) -> u64 {
        let rows = bank.ledger.lock().report();
        let row = rows.iter().find(|row| row.user.is_some() && row.limit == MEMORY.limit());
        row.unwrap().held.unwrap()
    }

    #[test]
    fn a_limited_session_holds_exactly_what_it_uses() {
        let (allowance, bank) = session("[user.7]\ndevice_memory = 1000\n");
        allowance.take(MEMORY, 600).unwrap();
        let Refused(why) = allowance.take(MEMORY, 500).unwrap_err();
        assert!(why.contains("device_memory") && why.contains("/l.toml, line 2"), "{why}");
        let part = Taken::new(&allowance, MEMORY, 400).unwrap();
        assert_eq!(lent(&bank), 1000);
        drop(part);
        allowance.give(MEMORY, 600);
        assert_eq!(lent(&bank), 0);
    }

    #[test]
    fn threads_that_take_and_give_leave_nothing() {
        let (allowance, bank) = session("[user.7]\ndevice_memory = 1000\n");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        // Together they never hold more than the limit.
                        drop(Taken::new(&allowance, MEMORY, 250).unwrap());
                    }
                });
            }
        });
        assert_eq!(lent(&bank), 0);
    }

    #[test]
    fn a_new_limit_takes_back_what_is_spare() {
        let (allowance, bank) = session("");
        allowance.take(MEMORY, 600).unwrap();
        assert_eq!(lent(&bank), 16 << 20);
        let limits = Limits::parse("[user.7]\ndevice_memory = 500\n", std::path::Path::new("/l"));
        let terms = {
            let mut ledger = bank.ledger.lock();
            ledger.set_limits(limits.unwrap());
            ledger.terms(1)
        };
        allowance.apply(terms);
        assert_eq!(lent(&bank), 600);
        allowance.take(MEMORY, 1).unwrap_err();
    }

    #[test]
    fn an_answer_that_nobody_awaits_is_given_back() {
        let (allowance, bank) = session("[user.7]\ndevice_memory = 1000\n");
        let loan = bank.ledger.lock().borrow(1, MEMORY, 10).unwrap();
        allowance.answered(99, MEMORY, Ok(loan));
        assert_eq!(lent(&bank), 0);
    }

    #[test]
    fn without_a_daemon_nothing_is_asked() {
        let allowance = Allowance::unlimited();
        allowance.take(MEMORY, 1 << 50).unwrap();
        allowance.give(MEMORY, 1 << 50);
        assert_eq!(allowance.bytes_max(), limits::STAGED_BYTES_MAX);
        assert!(!allowance.watches_kernels());
    }
}
