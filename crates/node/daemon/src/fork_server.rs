//! The fork server, as the daemon sees it: the process that becomes the foremen of workers.
//!
//! It has one request at a time. Until it has copied itself, the daemon keeps the foreman's end of
//! the connection. So a worker does not notice that a fork server has ended, and the next one gets
//! the same request.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use penstock_link::Patience;
use penstock_process::Lock;

use crate::builder::{FromForkServer, Request, ToForkServer};
use crate::folders::Folder;
use crate::launch::Launch;
use crate::message::{Control, ToWorker};
use crate::said;
use crate::workers::{NeedsForeman, Workers};

/// Longest wait for a copy. The first one may come after the drivers have been loaded and an empty
/// kernel was built, which takes a second. Workers wait for twice as long.
const COPY_MAX: Duration = Duration::from_secs(30);

/// The fork server of a daemon. It is started when the first worker needs a foreman. Only the
/// daemon's own thread may use it: the system ends the process with the thread that has started it.
#[derive(Debug, Default)]
pub(crate) struct ForkServer {
    running: Option<Running>,
    /// Set when one has ended by itself, maybe because of the drivers: later ones do not load them.
    is_plain: bool,
    /// The first one is with the fork server.
    wishes: VecDeque<Wish>,
    /// The workers whose foremen it may have.
    served: Vec<u32>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    control: Control,
    /// Where PoCL keeps its files until a copy moves to the folder of its worker.
    _folder: Option<Folder>,
}

/// A foreman that a worker needs.
#[derive(Debug)]
struct Wish {
    request: Request,
    /// The foreman's end of the connection to the worker, and its standard error.
    socket: OwnedFd,
    output: OwnedFd,
    sent: Option<Instant>,
    /// Whether a fork server has ended that had this request.
    is_again: bool,
}

impl ForkServer {
    /// Has a foreman started. Returns the worker's end of the connection to it, which closes if the
    /// foreman cannot start.
    ///
    /// # Errors
    /// The worker has asked before and has no answer yet, or the system has no room for the
    /// connection or for a thread that writes into the log.
    fn engage(&mut self, launch: &Launch, request: Request) -> io::Result<Control> {
        if self.wishes.iter().any(|wish| wish.request.worker == request.worker) {
            return Err(io::Error::other("the worker waits for one already"));
        }
        let (ours, socket) = Control::pair()?;
        let (said, output) = said::pipe()?;
        launch.relays.start(launch.log, request.worker, said)?;
        self.wishes.push_back(Wish { request, socket, output, sent: None, is_again: false });
        self.turn(launch, Instant::now());
        Ok(ours)
    }

    /// Returns what to wait on.
    pub(crate) fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.running.as_ref().map(|running| running.control.as_fd())
    }

    /// Returns when to look again even if nothing has come.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        Some(self.wishes.front()?.sent? + COPY_MAX)
    }

    /// Takes what the fork server says, or notes its end, and sends the next request.
    fn heed(&mut self, launch: &Launch, now: Instant) {
        while let Some(running) = &self.running {
            match running.control.receive::<FromForkServer>(Patience::Never) {
                Ok(Some((FromForkServer::Copied, _))) => _ = self.wishes.pop_front(),
                // One without drivers can do no more than this one.
                Ok(Some((FromForkServer::Refused(why), _))) if self.is_plain => {
                    tracing::warn!(why, "there is no process for compilers");
                    self.wishes.pop_front();
                }
                Ok(Some((FromForkServer::Refused(why), _))) => self.lose(&why),
                Ok(None) if self.next_look().is_some_and(|at| now >= at) => self.lose("it hangs"),
                Ok(None) => break,
                Err(_) => self.lose("it has ended"),
            }
        }
        self.turn(launch, now);
    }

    /// Gives foremen to the workers that have asked for one, and ends those of workers that have
    /// ended. Call this when the workers that have ended have been taken out of the table, and
    /// before others are started, which may have their numbers.
    pub(crate) fn bring_foremen(&mut self, launch: &Launch, workers: &Lock<Workers>) {
        let is_here = |worker: &u32| workers.lock().is_serving(*worker);
        self.wishes.retain(|wish| wish.sent.is_some() || is_here(&wish.request.worker));
        let gone: Vec<u32> = self.served.extract_if(.., |worker| !is_here(worker)).collect();
        for worker in gone {
            let end = ToForkServer::End(worker);
            let told = self.running.as_ref().map(|running| running.control.send(&end, None));
            if let Some(Err(error)) = told {
                self.lose(&error.to_string());
            }
        }
        self.heed(launch, Instant::now());
        let needing = std::mem::take(&mut workers.lock().need_foremen);
        for NeedsForeman { worker, question } in needing {
            let found = workers.lock().foreman_of(worker);
            let Some((control, request)) = found else { continue };
            let engage = |request| self.engage(launch, request).map_err(|error| error.to_string());
            let engaged = request.and_then(engage);
            let why = engaged.as_ref().err().cloned();
            let answer = ToWorker::Foreman { question, why };
            // A worker that does not take the answer is ending, or waits for a limited time.
            _ = control.send(&answer, engaged.as_ref().ok().map(|control| control.as_fd()));
        }
    }

    /// Sends the first request, unless it is sent.
    fn turn(&mut self, launch: &Launch, now: Instant) {
        while self.wishes.front().is_some_and(|wish| wish.sent.is_none()) {
            if let Err(error) = self.send(launch, now) {
                // The worker learns it when the connection closes.
                tracing::warn!(%error, "the fork server cannot be started");
                self.wishes.pop_front();
            }
        }
    }

    fn send(&mut self, launch: &Launch, now: Instant) -> io::Result<()> {
        let running = match &mut self.running {
            Some(running) => running,
            none => none.insert(start(launch)?),
        };
        let Some(wish) = self.wishes.front_mut() else { return Ok(()) };
        if self.is_plain {
            wish.request.copied = None;
        }
        wish.sent = Some(now);
        if !self.served.contains(&wish.request.worker) {
            self.served.push(wish.request.worker);
        }
        let request = ToForkServer::Foreman(wish.request.clone());
        let sent = running
            .control
            .send(&ToForkServer::Output, Some(wish.output.as_fd()))
            .and_then(|()| running.control.send(&request, Some(wish.socket.as_fd())));
        if let Err(error) = sent {
            self.lose(&error.to_string());
        }
        Ok(())
    }

    /// Does without this fork server from now on.
    fn lose(&mut self, why: &str) {
        tracing::warn!(why, "the fork server is replaced");
        self.end();
        self.is_plain = true;
        // Its foremen have ended with it.
        self.served.clear();
        let sent = self.wishes.pop_front_if(|wish| wish.sent.take().is_some());
        if let Some(wish) = sent.filter(|wish| !wish.is_again) {
            self.wishes.push_front(Wish { is_again: true, ..wish });
        }
    }

    /// Ends the fork server and with it all foremen.
    fn end(&mut self) {
        if let Some(Running { mut child, .. }) = self.running.take() {
            // If it has ended by itself, there is nothing to do.
            _ = child.kill().and_then(|()| child.wait());
        }
    }
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        self.end();
    }
}

fn start(launch: &Launch) -> io::Result<Running> {
    // It serves workers of all users, so it has the daemon's.
    let folder = launch.folders.as_ref().map(|folders| folders.worker(None)).transpose()?;
    let (said, stderr) = said::pipe()?;
    // The folder is that in which the process is when it loads the drivers, and in its copies the
    // folder of their worker.
    let own = folder.as_ref().map(|_| Path::new(""));
    let (mut child, control) = launch.process(Some("fork-server"), own, stderr)?;
    let place = folder.as_ref().map(|folder| folder.path().to_owned());
    let first = ToWorker::ForkServer { simulate: launch.simulate, folder: place };
    let relayed = launch.relays.start(launch.log, child.id(), said);
    let ready = relayed.and_then(|()| control.send(&first, None).map_err(io::Error::other));
    if let Err(error) = ready {
        _ = child.kill().and_then(|()| child.wait());
        return Err(error);
    }
    Ok(Running { child, control, _folder: folder })
}
