//! A child process, as the campaign sees it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use penstock_process::Lock;

use crate::args::CheckArgs;
use crate::finding::{Finding, Kind};
use crate::interface::Interface;
use crate::message::{Answer, Request};
use crate::plan::Platform;

/// Variable with the seed for delays in Penstock's links and workers. Only test builds read it.
const DELAYS: &str = "PENSTOCK_TEST_DELAYS";
/// Longest time in seconds for loading a driver and listing its devices. Pools of several nodes
/// take some seconds under load.
const OPEN_SECONDS_MAX: u64 = 90;
/// Extra seconds for a child that sends nothing. A child that notices a hang reports it itself.
const GRACE_SECONDS: u64 = 10;
/// Number of bytes kept from the end of a child's standard error.
const LAST_WORDS_MAX: usize = 2000;

/// The settings with which children start.
#[derive(Clone, Debug)]
pub struct Starter {
    prefix: Vec<String>,
    platform: String,
    hang_seconds: u64,
}

impl Starter {
    /// Takes the settings from the command line.
    pub fn new(args: &CheckArgs, prefix: &[&str]) -> Self {
        Self {
            prefix: prefix.iter().map(|&word| word.to_owned()).collect(),
            platform: args.platform.clone(),
            hang_seconds: args.hang_seconds,
        }
    }

    /// Returns a copy with another time-out for hanging programs, in seconds.
    pub fn patient(&self, hang_seconds: u64) -> Self {
        Self { hang_seconds, ..self.clone() }
    }
}

/// How a request ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    Clean,
    /// A program of this seed has a finding, and the child has ended.
    Found(u64, Finding),
    /// The ledger rejects a program of this seed.
    Invalid(u64, String),
    /// The child cannot run programs.
    Broken(String),
}

#[derive(Debug)]
pub struct Worker<I: Interface> {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<Answer<I>>,
    words: Arc<Lock<Vec<u8>>>,
    silence: Duration,
}

impl<I: Interface> Drop for Worker<I> {
    fn drop(&mut self) {
        // The child may have ended by itself.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl<I: Interface> Worker<I> {
    /// Starts a child and lets it open the platform.
    ///
    /// # Errors
    ///
    /// Returns the reason if no program can run on the platform.
    pub fn start(starter: &Starter, seed: u64) -> Result<(Self, Platform<I::Device>), String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command
            .args(&starter.prefix)
            .args(I::CHILD_OPTIONS)
            .arg("--child")
            .env(DELAYS, seed.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().map_err(|error| format!("a child cannot be started: {error}"))?;
        let (sender, answers) = std::sync::mpsc::channel();
        let output = child.stdout.take().ok_or("a child has no standard output")?;
        let hear = move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // A driver may write to standard output, too.
                if let Ok(answer) = serde_json::from_str(&line)
                    && sender.send(answer).is_err()
                {
                    break;
                }
            }
        };
        let no_thread = |error| format!("a child has no thread: {error}");
        penstock_process::start("answers", hear).map_err(no_thread)?;
        let words = Arc::new(Lock::new(Vec::new()));
        let (mut errors, kept) =
            (child.stderr.take().ok_or("a child has no standard error")?, Arc::clone(&words));
        let keep = move || {
            let mut part = [0; 1024];
            while let Ok(len @ 1..) = errors.read(&mut part) {
                let mut kept = kept.lock();
                kept.extend_from_slice(&part[..len]);
                let excess = kept.len().saturating_sub(LAST_WORDS_MAX);
                kept.drain(..excess);
            }
        };
        penstock_process::start("last words", keep).map_err(no_thread)?;
        let input = child.stdin.take();
        let silence = Duration::from_secs(starter.hang_seconds + GRACE_SECONDS);
        let mut worker = Self { child, input, answers, words, silence };
        let open = Request::Open {
            platform: starter.platform.clone(),
            hang_seconds: starter.hang_seconds,
        };
        worker.send(&open)?;
        match worker.answers.recv_timeout(Duration::from_secs(OPEN_SECONDS_MAX)) {
            Ok(Answer::Opened(platform)) => Ok((worker, platform)),
            Ok(Answer::Unable(reason)) => Err(reason),
            _ => Err(format!("the platform cannot be opened; {}", worker.last_words())),
        }
    }

    fn send(&mut self, request: &Request<I>) -> Result<(), String> {
        let line = serde_json::to_string(request).map_err(|error| error.to_string())?;
        let input = self.input.as_mut().ok_or("the child takes no requests")?;
        writeln!(input, "{line}").and_then(|()| input.flush()).map_err(|error| error.to_string())
    }

    /// Sends a request to the child and waits for its end. `started` gets the seed of each program
    /// and returns whether to continue.
    pub fn ask(&mut self, request: &Request<I>, started: &dyn Fn(u64) -> bool) -> Outcome {
        if let Err(reason) = self.send(request) {
            return Outcome::Broken(reason);
        }
        let mut current = None;
        loop {
            match self.answers.recv_timeout(self.silence) {
                Ok(Answer::Started(seed)) => {
                    if !started(seed) {
                        return Outcome::Clean;
                    }
                    current = Some(seed);
                }
                Ok(Answer::Found(seed, finding)) => return Outcome::Found(seed, finding),
                Ok(Answer::Invalid(seed, reason)) => return Outcome::Invalid(seed, reason),
                Ok(Answer::Done) => return Outcome::Clean,
                Ok(Answer::Unable(reason)) => return Outcome::Broken(reason),
                Ok(Answer::Opened(_)) => {}
                Err(RecvTimeoutError::Timeout) => {
                    let what = format!("the process sends nothing; {}", self.last_words());
                    return self.ended(current, Kind::Hang, what);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self
                        .child
                        .wait()
                        .map_or_else(|error| error.to_string(), |it| it.to_string());
                    let what = format!("the process ended ({status}); {}", self.last_words());
                    return self.ended(current, Kind::Crash, what);
                }
            }
        }
    }

    fn ended(&self, seed: Option<u64>, kind: Kind, what: String) -> Outcome {
        match seed {
            Some(seed) => Outcome::Found(seed, Finding { kind, op: None, at: None, what }),
            None => Outcome::Broken(what),
        }
    }

    fn last_words(&self) -> String {
        // The thread that reads standard error may lag a little.
        std::thread::sleep(Duration::from_millis(50));
        let words = String::from_utf8_lossy(&self.words.lock()).into_owned();
        let lines: Vec<&str> = words.lines().rev().take(4).collect();
        let lines: Vec<&str> = lines.into_iter().rev().collect();
        format!("its last words: {:?}", lines.join(" / "))
    }
}
