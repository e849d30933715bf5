//! The work of one process of a host path. The first process leads: it sends orders to the others.

use std::time::Instant;

use super::local::{Buffer, Local};
use super::memory::{Differences, Room, Span, differences, fill};
use super::stream::{Checked, Ends, How, Messages, Way};
use crate::error::{Error, Result};
use crate::plan::{Kind, Path, WINDOW, window_bytes_max, window_of};
use crate::point::{Run, Samples};
use crate::wire::Wire;

/// Bytes of an order and of a report: eight numbers.
const LETTER_BYTES: usize = 64;
/// Samples of the run that determines the number of samples of later runs.
const WARM_SAMPLES: u64 = 4;
/// Smallest number of samples with a meaningful median.
const SAMPLES_MIN: u64 = 5;
/// More samples do not improve the median. But with energy measurement, a run lasts seconds.
const SAMPLES_MAX: u64 = 2_000_000;
/// Bytes of one bandwidth sample. The last transfer overlaps with nothing and is a small part of
/// this.
const STREAM_BYTES: u64 = 16 << 20;
/// Smallest and largest number of messages in a bandwidth sample.
const STREAM_MESSAGES: (u64, u64) = (16, 256);

/// Returns the number of messages in one sample.
#[must_use]
pub fn messages_of(kind: Kind, bytes: u64) -> u64 {
    let (least, most) = STREAM_MESSAGES;
    if kind == Kind::Bandwidth { (STREAM_BYTES / bytes.max(1)).clamp(least, most) } else { 1 }
}

/// A step that all processes perform together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CommonStep {
    /// `None` ends the process.
    kind: Option<Kind>,
    way: Way,
    spins: bool,
    bytes: u64,
    samples: u64,
    seed: u64,
}

impl CommonStep {
    fn letter(self) -> [u64; 8] {
        let kind = self.kind.map_or(0, |kind| match kind {
            Kind::PingPong => 1,
            Kind::Bandwidth => 2,
            Kind::Barrier => 3,
        });
        let (way, chunk) = match self.way {
            Way::Plain => (0, 0),
            Way::Copy(chunk) => (1, chunk),
            Way::Map(chunk) => (2, chunk),
        };
        [kind, way, chunk, self.spins.into(), self.bytes, self.samples, self.seed, 0]
    }

    fn of(letter: [u64; 8]) -> Self {
        let [kind, way, chunk, spins, bytes, samples, seed, _] = letter;
        Self {
            kind: match kind {
                1 => Some(Kind::PingPong),
                2 => Some(Kind::Bandwidth),
                3 => Some(Kind::Barrier),
                _ => None,
            },
            way: match way {
                0 => Way::Plain,
                1 => Way::Copy(chunk),
                _ => Way::Map(chunk),
            },
            spins: spins != 0,
            bytes,
            samples,
            seed,
        }
    }
}

/// The results of one process.
#[derive(Clone, Copy, Debug, Default)]
struct Report {
    core_ns: u64,
    checked: Checked,
}

/// A process of a host path.
pub struct Part {
    local: Local,
    wire: Box<dyn Wire>,
    /// The messages to send and to receive. In the first process only those to send.
    buffer: Buffer,
    /// The messages that come back to the first process.
    back: Buffer,
    stage: Room,
    letter: Span,
    seed: u64,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part")
            .field("local", &self.local)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

impl Part {
    /// Creates a process that can hold messages of up to `bytes_max` bytes.
    ///
    /// # Errors
    /// Returns the device's error.
    pub fn new(local: Local, wire: Box<dyn Wire>, bytes_max: u64) -> Result<Self> {
        let bytes = to_usize(window_bytes_max(bytes_max));
        let (buffer, back) = (local.buffer(bytes)?, local.buffer(bytes)?);
        // Each chunk under way has its own room, even if it is a whole message.
        let stage = Room::new(to_usize(bytes_max * WINDOW).max(bytes));
        local.lend(stage)?;
        let letter = Room::new(LETTER_BYTES).span(0, LETTER_BYTES);
        Ok(Self { local, wire, buffer, back, stage, letter, seed: 0 })
    }

    /// Waits until all processes are here.
    ///
    /// # Errors
    /// Returns the wire's error.
    pub fn meet(&mut self) -> Result<()> {
        self.wire.barrier()
    }

    /// Returns the names of the device and of the wire.
    ///
    /// # Errors
    /// Returns the device's error.
    pub fn names(&self) -> Result<(String, String)> {
        Ok((self.local.name()?, self.wire.name()))
    }

    #[must_use]
    pub fn maps(&self) -> bool {
        self.local.maps()
    }

    /// Follows orders until there are no more.
    ///
    /// # Errors
    /// Returns the device's or the wire's error.
    pub fn follow(&mut self) -> Result<()> {
        loop {
            self.wire.set_spins(false)?;
            self.wire.receive(0, self.letter)?;
            let order = CommonStep::of(numbers(self.letter));
            let Some(kind) = order.kind else { return self.wire.close() };
            let (_, report) = self.execute(kind, order)?;
            let Report { core_ns, checked } = report;
            self.wire.set_spins(false)?;
            write(
                self.letter,
                [core_ns, checked.count, checked.wrong, checked.found, checked.expected, 0, 0, 0],
            );
            self.wire.send(0, self.letter)?;
        }
    }

    /// Makes all other processes end.
    ///
    /// # Errors
    /// Returns the wire's error.
    pub fn end(&mut self) -> Result<()> {
        self.order(CommonStep {
            kind: None,
            way: Way::Plain,
            spins: false,
            bytes: 0,
            samples: 0,
            seed: 0,
        })?;
        self.wire.close()
    }

    /// Returns the number of samples that take `seconds`. Also warms up everything that is used.
    ///
    /// # Errors
    /// As [`Part::measure`].
    pub fn samples_for(
        &mut self,
        path: Path,
        kind: Kind,
        bytes: u64,
        how: How,
        seconds: f64,
    ) -> Result<u64> {
        let mut samples = WARM_SAMPLES;
        // The times of the first run are too long, because it includes one-time work.
        for part in [0.02, 1.0] {
            let us = self.measure(path, kind, bytes, how, samples)?.samples.quantile(0.5)
                * one(kind, bytes);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a number of samples, kept within limits"
            )]
            let wanted = (part * seconds * 1e6 / us.max(1e-3)) as u64;
            samples = wanted.clamp(SAMPLES_MIN, SAMPLES_MAX);
        }
        Ok(samples)
    }

    /// Measures `samples` samples.
    ///
    /// # Errors
    /// Returns the device's or the wire's error, or [`Error::Wrong`].
    pub fn measure(
        &mut self,
        path: Path,
        kind: Kind,
        bytes: u64,
        how: How,
        samples: u64,
    ) -> Result<Run> {
        self.seed += 1;
        let How { way, spins } = how;
        let order = CommonStep { kind: Some(kind), way, spins, bytes, samples, seed: self.seed };
        self.order(order)?;
        let (times, own) = self.execute(kind, order)?;
        self.wire.set_spins(false)?;
        let mut reports = vec![own];
        for rank in 1..self.wire.ranks() {
            self.wire.receive(rank, self.letter)?;
            let [core_ns, count, wrong, found, expected, ..] = numbers(self.letter);
            reports.push(Report { core_ns, checked: Checked { count, wrong, found, expected } });
        }
        if let Some(Report { checked: it, .. }) =
            reports.iter().find(|report| report.checked.wrong > 0)
        {
            let (found, expected) = (it.found, it.expected);
            return Err(Error::Wrong {
                path: path.name(),
                bytes,
                count: it.wrong,
                found,
                expected,
            });
        }
        let one = one(kind, bytes);
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a run: far below 2^52")]
        let core_ns = reports.iter().map(|report| report.core_ns).sum::<u64>() as f64;
        Ok(Run {
            samples: Samples::of(times.into_iter().map(|us| us / one).collect()),
            count: samples * ways(kind) * messages_of(kind, bytes),
            core_seconds: Some(core_ns * 1e-9),
            checked: reports.iter().map(|report| report.checked.count).sum(),
        })
    }

    fn order(&mut self, order: CommonStep) -> Result<()> {
        self.wire.set_spins(false)?;
        write(self.letter, order.letter());
        for rank in 1..self.wire.ranks() {
            self.wire.send(rank, self.letter)?;
        }
        Ok(())
    }

    /// Performs this process's part of an order. Returns the times of its samples in microseconds.
    fn execute(&mut self, kind: Kind, order: CommonStep) -> Result<(Vec<f64>, Report)> {
        self.wire.set_spins(order.spins)?;
        let bytes = to_usize(order.bytes);
        let leads = self.wire.rank() == 0;
        if leads && kind != Kind::Barrier {
            let all = self.stage.span(0, to_usize(order.bytes * window_of(order.bytes)));
            fill(all.as_mut(), order.seed);
            self.local.write(self.buffer, 0, all)?;
        }
        self.wire.barrier()?;
        let core_ns = core_ns()?;
        let mut checked = Checked::default();
        let mut times = Vec::with_capacity(to_usize(order.samples));
        for _ in 0..order.samples {
            let began = Instant::now();
            match kind {
                Kind::Barrier => {
                    self.local.dummy()?;
                    self.wire.barrier()?;
                }
                Kind::PingPong => self.ping_pong(leads, order, &mut checked)?,
                Kind::Bandwidth => self.stream(leads, order, &mut checked)?,
            }
            times.push(began.elapsed().as_secs_f64() * 1e6);
        }
        let core_ns = self::core_ns()?.saturating_sub(core_ns);
        match (kind, leads) {
            (Kind::PingPong, true) => self.compare(self.back, bytes, order.seed, &mut checked)?,
            (Kind::PingPong, false) => {
                self.compare(self.buffer, bytes, order.seed, &mut checked)?
            }
            (Kind::Bandwidth, false) => {
                let whole = to_usize(order.bytes * window_of(order.bytes));
                self.compare(self.buffer, whole, order.seed, &mut checked)?;
            }
            _ => {}
        }
        Ok((times, Report { core_ns, checked }))
    }

    /// Compares all bytes that a device received, word by word.
    fn compare(
        &mut self,
        buffer: Buffer,
        bytes: usize,
        seed: u64,
        checked: &mut Checked,
    ) -> Result<()> {
        let span = self.stage.span(0, bytes);
        self.local.read(buffer, 0, span)?;
        checked.count += bytes as u64 / 8;
        if let Some(Differences { count, found, expected }) = differences(span.as_slice(), seed, 0)
        {
            *checked = Checked { wrong: checked.wrong + count, found, expected, ..*checked };
        }
        Ok(())
    }

    fn ping_pong(&mut self, leads: bool, order: CommonStep, checked: &mut Checked) -> Result<()> {
        let peer = u32::from(leads);
        let messages = Messages { peer, bytes: to_usize(order.bytes), count: 1, seed: order.seed };
        let (buffer, back) = (self.buffer, if leads { self.back } else { self.buffer });
        if leads {
            self.ends(buffer).send(messages, order.way)?;
            self.ends(back).receive(messages, order.way, checked)
        } else {
            self.ends(back).receive(messages, order.way, checked)?;
            self.ends(buffer).send(messages, order.way)
        }
    }

    /// Sends messages in one direction. The last word comes back.
    fn stream(&mut self, leads: bool, order: CommonStep, checked: &mut Checked) -> Result<()> {
        let count = messages_of(Kind::Bandwidth, order.bytes);
        let peer = u32::from(leads);
        let messages = Messages { peer, bytes: to_usize(order.bytes), count, seed: order.seed };
        let (buffer, letter) = (self.buffer, self.letter);
        if leads {
            self.ends(buffer).send(messages, order.way)?;
            self.wire.receive(peer, letter)
        } else {
            self.ends(buffer).receive(messages, order.way, checked)?;
            self.wire.send(peer, letter)
        }
    }

    fn ends(&mut self, buffer: Buffer) -> Ends<'_> {
        Ends { local: &self.local, wire: self.wire.as_mut(), buffer, stage: self.stage }
    }
}

/// Returns the number of directions: a ping-pong's message goes there and back.
fn ways(kind: Kind) -> u64 {
    if kind == Kind::PingPong { 2 } else { 1 }
}

/// Returns the number of messages (one way) or barriers per sample.
fn one(kind: Kind, bytes: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "at most some hundred")]
    let one = (ways(kind) * messages_of(kind, bytes)) as f64;
    one
}

/// Returns the core time of this process, including its drivers' threads.
fn core_ns() -> Result<u64> {
    let time = penstock_energy::cores::of_process(std::process::id())?;
    Ok(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn numbers(letter: Span) -> [u64; 8] {
    let mut numbers = [0; 8];
    for (number, bytes) in numbers.iter_mut().zip(letter.as_slice().as_chunks::<8>().0) {
        *number = u64::from_le_bytes(*bytes);
    }
    numbers
}

fn write(letter: Span, numbers: [u64; 8]) {
    for (bytes, number) in letter.as_mut().as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
        *bytes = number.to_le_bytes();
    }
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_arrive_as_they_were_given() {
        for kind in [None, Some(Kind::PingPong), Some(Kind::Bandwidth), Some(Kind::Barrier)] {
            for way in [Way::Plain, Way::Copy(65536), Way::Map(8)] {
                let order = CommonStep { kind, way, spins: true, bytes: 8, samples: 9, seed: 10 };
                assert_eq!(CommonStep::of(order.letter()), order);
            }
        }
    }

    #[test]
    fn a_sample_of_bandwidth_has_enough_messages() {
        assert_eq!(messages_of(Kind::Bandwidth, 8), 256);
        assert_eq!(messages_of(Kind::Bandwidth, 1 << 20), 16);
        assert_eq!(messages_of(Kind::PingPong, 8), 1);
    }
}
