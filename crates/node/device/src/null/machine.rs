//! Which command of a context runs next. Without threads, locks and clocks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use penstock_cl_sys::{CL_QUEUED, CL_RUNNING};
use penstock_wire::Times;
use penstock_wire::status::Status;

/// Number of a command or user event of a context.
pub(super) type Number = u64;

/// How and when a command ended. Its event shares it.
#[derive(Debug)]
pub(super) struct End {
    status: AtomicI32,
    times: OnceLock<Times>,
}

impl End {
    pub(super) fn status(&self) -> Status {
        Status(self.status.load(Ordering::Acquire))
    }

    pub(super) fn times(&self) -> Times {
        self.times.get().copied().unwrap_or_default()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.status().0 <= 0
    }
}

/// Which commands of its queue a command waits for, and which ones wait for it, out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Free,
    /// Without a wait list, it waits for all earlier commands.
    Marker,
    /// As a marker, and all later commands wait for it.
    Barrier,
}

/// What is to do next, outside of all locks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step<W, D> {
    /// Work to perform. [`Machine::end`] ends the command.
    Run(Number, W),
    /// Receivers of an end.
    Tell(Vec<D>, Status, Times),
}

/// Why a command waits for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// It comes later, however the other one ends.
    Order,
    /// The other one is in its wait list.
    WaitList,
}

struct Command<W, D> {
    /// `None` for a user event, and while the command runs.
    work: Option<W>,
    end: Arc<End>,
    /// Its queue; `None` for a user event.
    queue: Option<u64>,
    /// Number of open commands that it comes after.
    behind: usize,
    /// Number of open events in its wait list.
    waits: usize,
    is_failed: bool,
    is_due: bool,
    followers: Vec<(Number, Reason)>,
    told: Vec<D>,
    times: Times,
}

/// A queue.
struct Line {
    in_order: bool,
    /// Commands that have not ended, without those that another one of these waits for.
    last: BTreeSet<Number>,
    /// The last barrier, until it has ended.
    barrier: Option<Number>,
    open: usize,
    is_closed: bool,
}

/// The commands of a context. `W` is their work, and `D` are the receivers of their ends.
pub(super) struct Machine<W, D> {
    next: Number,
    /// The counter of the times.
    now: u64,
    is_lost: bool,
    lines: BTreeMap<u64, Line>,
    commands: BTreeMap<Number, Command<W, D>>,
    due: VecDeque<Number>,
    steps: VecDeque<Step<W, D>>,
}

impl<W, D> Default for Machine<W, D> {
    fn default() -> Self {
        Self {
            next: 0,
            now: 0,
            is_lost: false,
            lines: BTreeMap::new(),
            commands: BTreeMap::new(),
            due: VecDeque::new(),
            steps: VecDeque::new(),
        }
    }
}

impl<W, D> Machine<W, D> {
    fn number(&mut self) -> Number {
        self.next += 1;
        self.next
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    pub(super) fn add_queue(&mut self, in_order: bool) -> u64 {
        let (last, barrier) = (BTreeSet::new(), None);
        let line = Line { in_order, last, barrier, open: 0, is_closed: false };
        let number = self.number();
        self.lines.insert(number, line);
        number
    }

    /// Forgets a queue when its commands have ended.
    pub(super) fn close_queue(&mut self, queue: u64) {
        if let Some(line) = self.lines.get_mut(&queue) {
            line.is_closed = true;
            if line.open == 0 {
                self.lines.remove(&queue);
            }
        }
    }

    pub(super) fn add_user_event(&mut self) -> (Number, Arc<End>) {
        self.insert(None, None)
    }

    /// Adds a command. Fails if an event of the wait list has failed, or if the context is lost.
    pub(super) fn add(
        &mut self,
        queue: u64,
        place: Place,
        waits: &[(Number, &End)],
        work: W,
    ) -> Result<(Number, Arc<End>), Status> {
        let has_failed = waits.iter().any(|(_, end)| end.status().is_error());
        if self.is_lost || has_failed {
            let lost = self.is_lost;
            return Err(if lost { Status::OUT_OF_RESOURCES } else { Status::WAIT_LIST_FAILED });
        }
        let (number, end) = self.insert(Some(queue), Some(work));
        for before in self.line_up(queue, number, place, !waits.is_empty()) {
            self.follow(number, before, Reason::Order);
        }
        for (event, _) in waits {
            self.follow(number, *event, Reason::WaitList);
        }
        self.look_at(number);
        Ok((number, end))
    }

    fn insert(&mut self, queue: Option<u64>, work: Option<W>) -> (Number, Arc<End>) {
        let number = self.number();
        let end = Arc::new(End { status: AtomicI32::new(CL_QUEUED), times: OnceLock::new() });
        let (queued, submitted) = (self.tick(), self.tick());
        let command = Command {
            work,
            end: end.clone(),
            queue,
            behind: 0,
            waits: 0,
            is_failed: false,
            is_due: false,
            followers: Vec::new(),
            told: Vec::new(),
            times: Times { queued, submitted, ..Times::default() },
        };
        self.commands.insert(number, command);
        (number, end)
    }

    /// Puts a command at the end of its queue. Returns the commands that it comes after.
    fn line_up(
        &mut self,
        queue: u64,
        number: Number,
        place: Place,
        has_waits: bool,
    ) -> Vec<Number> {
        let Some(line) = self.lines.get_mut(&queue) else { return Vec::new() };
        line.open += 1;
        let before = if line.in_order || (place != Place::Free && !has_waits) {
            std::mem::take(&mut line.last).into_iter().collect()
        } else {
            line.barrier.into_iter().collect()
        };
        line.last.insert(number);
        if place == Place::Barrier {
            line.barrier = Some(number);
        }
        before
    }

    fn follow(&mut self, number: Number, before: Number, reason: Reason) {
        // What is not here has ended.
        let Some(first) = self.commands.get_mut(&before) else { return };
        first.followers.push((number, reason));
        if let Some(command) = self.commands.get_mut(&number) {
            match reason {
                Reason::Order => command.behind += 1,
                Reason::WaitList => command.waits += 1,
            }
        }
    }

    /// Makes a command due if it waits for nothing more. One whose wait list has failed only waits
    /// for its turn in its queue.
    fn look_at(&mut self, number: Number) {
        let Some(command) = self.commands.get_mut(&number) else { return };
        let waits = command.waits > 0 && !command.is_failed;
        if command.behind == 0 && !waits && !command.is_due {
            command.is_due = true;
            self.due.push_back(number);
        }
    }

    /// Ends a user event, once.
    pub(super) fn complete(&mut self, number: Number, status: Status) -> Result<(), Status> {
        // "CL_INVALID_OPERATION if the execution_status for event has already been changed by a
        // previous call to clSetUserEventStatus."
        let is_open = self.commands.get(&number).is_some_and(|command| command.queue.is_none());
        if !is_open {
            return Err(Status::INVALID_OPERATION);
        }
        self.end(number, status);
        Ok(())
    }

    /// Ends a command, once.
    pub(super) fn end(&mut self, number: Number, status: Status) {
        let Some(command) = self.commands.remove(&number) else { return };
        let now = self.tick();
        let mut times = Times { ended: now, completed: now, ..command.times };
        if times.started == 0 {
            times.started = now;
        }
        _ = command.end.times.set(times);
        command.end.status.store(status.0.min(0), Ordering::Release);
        self.leave(command.queue, number);
        for (follower, reason) in command.followers {
            let Some(next) = self.commands.get_mut(&follower) else { continue };
            match reason {
                Reason::Order => next.behind -= 1,
                Reason::WaitList => {
                    next.waits -= 1;
                    next.is_failed |= status.is_error();
                }
            }
            self.look_at(follower);
        }
        if !command.told.is_empty() {
            self.steps.push_back(Step::Tell(command.told, status, times));
        }
    }

    fn leave(&mut self, queue: Option<u64>, number: Number) {
        let Some(queue) = queue else { return };
        let Some(line) = self.lines.get_mut(&queue) else { return };
        line.last.remove(&number);
        line.barrier = line.barrier.filter(|barrier| *barrier != number);
        line.open -= 1;
        if line.is_closed && line.open == 0 {
            self.lines.remove(&queue);
        }
    }

    /// From now on commands fail instead of running.
    pub(super) fn lose(&mut self) {
        self.is_lost = true;
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Has the receiver told when the command has ended, or next if it has.
    pub(super) fn tell(&mut self, number: Number, end: &End, done: D) {
        match self.commands.get_mut(&number) {
            Some(command) => command.told.push(done),
            None => self.steps.push_back(Step::Tell(vec![done], end.status(), end.times())),
        }
    }

    /// Whether [`Machine::next_step`] has something to do.
    pub(super) fn has_steps(&self) -> bool {
        !self.steps.is_empty() || !self.due.is_empty()
    }

    pub(super) fn next_step(&mut self) -> Option<Step<W, D>> {
        loop {
            if let Some(step) = self.steps.pop_front() {
                return Some(step);
            }
            let number = self.due.pop_front()?;
            let now = self.tick();
            let Some(command) = self.commands.get_mut(&number) else { continue };
            if command.is_failed {
                self.end(number, Status::WAIT_LIST_FAILED);
            } else if self.is_lost {
                self.end(number, Status::OUT_OF_RESOURCES);
            } else if let Some(work) = command.work.take() {
                command.times.started = now;
                command.end.status.store(CL_RUNNING, Ordering::Release);
                return Some(Step::Run(number, work));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Simple = Machine<&'static str, u8>;

    /// Takes steps until there is none. Each command succeeds. Returns the work in its order.
    fn run(machine: &mut Simple) -> Vec<&'static str> {
        let mut done = Vec::new();
        while let Some(step) = machine.next_step() {
            if let Step::Run(number, work) = step {
                done.push(work);
                machine.end(number, Status::OK);
            }
        }
        done
    }

    #[test]
    fn out_of_order_only_barriers_and_wait_lists_hold_back() {
        use Place::{Barrier, Free, Marker};
        let mut machine = Simple::default();
        let queue = machine.add_queue(false);
        let (gate, open) = machine.add_user_event();
        let mut add =
            |place, waits: &[(Number, &End)], work| machine.add(queue, place, waits, work).unwrap();
        let (held, held_end) = add(Free, &[(gate, &open)], "held");
        add(Free, &[], "free");
        add(Marker, &[], "marker of all");
        add(Marker, &[(held, &held_end)], "marker of one");
        add(Barrier, &[], "barrier");
        add(Free, &[], "behind");
        assert_eq!(run(&mut machine), ["free"]);
        machine.complete(gate, Status::OK).unwrap();
        let rest = ["held", "marker of all", "marker of one", "barrier", "behind"];
        assert_eq!(run(&mut machine), rest);
        assert!(!machine.has_steps());
    }

    #[test]
    fn in_order_a_failure_ends_in_its_turn_and_takes_nothing_along() {
        let mut machine = Simple::default();
        let queue = machine.add_queue(true);
        let (gate, open) = machine.add_user_event();
        let (_, first) = machine.add(queue, Place::Free, &[], "first").unwrap();
        let failed = machine.add(queue, Place::Free, &[(gate, &open)], "failed").unwrap();
        let (_, behind) = machine.add(queue, Place::Free, &[], "behind").unwrap();
        machine.tell(failed.0, &failed.1, 7);
        machine.complete(gate, Status(-5)).unwrap();
        assert_eq!(machine.complete(gate, Status::OK), Err(Status::INVALID_OPERATION));
        let Some(Step::Run(number, "first")) = machine.next_step() else { panic!() };
        assert!(machine.next_step().is_none(), "the first command runs still");
        machine.end(number, Status::OK);
        let Some(Step::Tell(told, status, times)) = machine.next_step() else { panic!() };
        assert_eq!((told, status), (vec![7], Status::WAIT_LIST_FAILED));
        assert!(times.queued < times.submitted && times.submitted < times.started);
        assert_eq!(run(&mut machine), ["behind"]);
        assert_eq!([first.status(), behind.status()], [Status::OK; 2]);
        let refused = machine.add(queue, Place::Free, &[(gate, &open)], "late");
        assert_eq!(refused.unwrap_err(), Status::WAIT_LIST_FAILED);
        // A receiver that comes late is told the same.
        machine.tell(failed.0, &failed.1, 8);
        let late = Step::Tell(vec![8], Status::WAIT_LIST_FAILED, times);
        assert_eq!(machine.next_step(), Some(late));
    }

    #[test]
    fn a_failed_wait_list_is_not_waited_for() {
        let mut machine = Simple::default();
        let queue = machine.add_queue(false);
        let ((one, open), (other, open_too)) = (machine.add_user_event(), machine.add_user_event());
        let waits = [(one, &*open), (other, &*open_too)];
        let (_, end) = machine.add(queue, Place::Free, &waits, "never").unwrap();
        machine.complete(one, Status(-5)).unwrap();
        assert_eq!(run(&mut machine), [""; 0]);
        assert_eq!(end.status(), Status::WAIT_LIST_FAILED);
        machine.complete(other, Status::OK).unwrap();
        assert_eq!(run(&mut machine), [""; 0]);
    }

    #[test]
    fn a_lost_context_runs_nothing() {
        let mut machine = Simple::default();
        let queue = machine.add_queue(true);
        let (_, end) = machine.add(queue, Place::Free, &[], "never").unwrap();
        machine.lose();
        assert_eq!(run(&mut machine), [""; 0]);
        assert_eq!(end.status(), Status::OUT_OF_RESOURCES);
        let refused = machine.add(queue, Place::Free, &[], "late");
        assert_eq!(refused.unwrap_err(), Status::OUT_OF_RESOURCES);
    }

    #[test]
    fn nothing_stays_of_what_has_ended() {
        let mut machine = Simple::default();
        let queues = [machine.add_queue(true), machine.add_queue(false)];
        for queue in queues {
            for place in [Place::Free, Place::Marker, Place::Barrier, Place::Free] {
                machine.add(queue, place, &[], "work").unwrap();
            }
            machine.close_queue(queue);
        }
        assert_eq!(machine.lines.len(), 2);
        assert_eq!(run(&mut machine).len(), 8);
        assert!(machine.lines.is_empty() && machine.commands.is_empty());
    }
}
