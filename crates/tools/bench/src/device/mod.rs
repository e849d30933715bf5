//! The paths between devices: kernels of the pool's workers on this host, with a symmetric heap
//! between them.

mod seat;
mod ticks;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_cl_sys::CL_DEVICE_NAME;
use penstock_client::{Given, Heap, HeapOptions, Pool, Queue, Range, Want};
use penstock_link::{Address, Key};
use penstock_process::Lock;
use penstock_wire::Status;

use crate::comm::{Party, Progress, Results, groups};
use crate::error::{Error, Result};
use crate::host::measure::messages_of;
use crate::host::memory::{Differences, fill, word_of};
use crate::plan::{Kind, PASSES, Path, Plan, window_bytes_max, window_of};
use crate::point::{Joules, Point, Run, Samples, parts};
use seat::Seat;

/// Longest start of the workers. Each loads its drivers first, which takes some seconds if many do
/// so on two cores.
const OPEN_MAX: Duration = Duration::from_secs(120);
/// Longest wait of a kernel. Even with six devices per core, a kernel gets its turn within
/// milliseconds.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Offsets in a part: a kernel's results and times. `kernels.cl` has the same offsets.
const AT_RESULT: u64 = 8192;
const AT_STAMPS: u64 = 12_288;
const RESULT_WORDS: usize = 6;
/// Offset of the messages, behind the times of the largest number of samples.
const AT_MESSAGES: u64 = 1 << 20;
/// Largest number of samples per launch. Their times, and one more, fit before the messages.
const SAMPLES_MAX: u64 = (AT_MESSAGES - AT_STAMPS) / 8 - 1;
const _: () = assert!(AT_STAMPS + 8 * (SAMPLES_MAX + 1) <= AT_MESSAGES);
const _: () = assert!(AT_RESULT + 8 * RESULT_WORDS as u64 <= AT_STAMPS);
/// Smallest number of samples with a meaningful median.
const SAMPLES_MIN: u64 = 20;
/// Samples of the first run, and rounds of the barrier that is checked.
const WARM_SAMPLES: u64 = 20;
/// Largest repetition factor. With more, a launch would take minutes.
const TIMES_MAX: u64 = 1 << 16;
/// Smallest and largest number of round trips per sample. With more of them in short samples,
/// reading the clock is a small part of each.
const TRIPS: (u64, u64) = (1, 16);
const TRIP_BYTES: u64 = 64 << 10;
/// Barriers per sample. If the other side has come early, one barrier is complete at once and the
/// next one takes longer by as much: single times would mislead.
const BARRIERS: u64 = 16;

/// Daemons of this host, each with one device, one for each PE.
pub struct Nodes {
    /// Addresses on which they listen.
    pub addresses: Vec<Address>,
    /// Key for TCP connections.
    pub key: Option<Key>,
    /// Objects that end the daemons when they are dropped.
    pub daemons: Vec<Box<dyn fmt::Debug>>,
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nodes").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// Starts a number of daemons. If the second argument is set, they are reachable only over TCP.
/// Returns the reason if that fails.
pub type StartNodes<'a> = dyn FnMut(u32, bool) -> std::result::Result<Nodes, String> + 'a;

/// Measures the device path and the proxy path of a plan.
pub fn measure(
    plan: &Plan,
    start: &mut StartNodes<'_>,
    results: &mut Results,
    watch: &mut dyn FnMut(Progress<'_>),
) {
    for path in [Path::Device, Path::Proxy].into_iter().filter(|path| plan.paths.contains(path)) {
        for (count, kinds) in groups(plan) {
            let part = Plan { paths: vec![path], kinds, ..plan.clone() };
            if let Err(error) = measure_group(&part, path, count, start, results, watch) {
                results.lack(&[path], count, &error, watch);
            }
        }
    }
}

fn measure_group(
    plan: &Plan,
    path: Path,
    count: u32,
    start: &mut StartNodes<'_>,
    results: &mut Results,
    watch: &mut dyn FnMut(Progress<'_>),
) -> Result<()> {
    if path == Path::Proxy && plan.gpus >= count {
        return Err(Error::Absent("the GPUs are of one worker, which needs no proxy".to_owned()));
    }
    let nodes = start(count, path == Path::Proxy).map_err(Error::Absent)?;
    let moves = plan.kinds.iter().any(|kind| *kind != Kind::Barrier);
    let bytes_max = plan.sizes.iter().copied().max().filter(|_| moves).unwrap_or(8);
    let mut ring = Ring::open(&nodes, path, bytes_max, plan.gpus)?;
    let party = Party { paths: vec![path], device: ring.name(), wire: ring.way() };
    if !results.parties.contains(&party) {
        results.parties.push(party);
    }
    let mut joules = Joules::open(plan.idle_seconds)?;
    for &kind in (0..PASSES).flat_map(|_| &plan.kinds) {
        let sizes: &[u64] = if kind == Kind::Barrier { &[0] } else { &plan.sizes };
        for &bytes in sizes {
            watch(Progress::Begin { kind, path, bytes, devices: count });
            let seconds = joules.seconds_min().unwrap_or(0.0).max(plan.pass_seconds());
            let checked = if kind == Kind::Barrier { ring.check_barrier()? } else { 0 };
            let extent = ring.extent_of(kind, bytes, seconds)?;
            let run = || ring.run(kind, bytes, extent);
            let (run, energy) =
                joules.around(run, |run| parts(kind, bytes, plan.word, run.count))?;
            let run = Run { checked: run.checked + checked, ..run };
            results.keep(Point::of(kind, path, bytes, count, &run, energy));
        }
    }
    Ok(())
}

/// Devices that share a heap.
struct Ring {
    path: Path,
    heap: Arc<Heap>,
    seats: Vec<Seat>,
    workers: Vec<u32>,
    bytes_max: u64,
    ticks_per_us: Option<f64>,
    /// The last epoch of all launches so far.
    epoch: u64,
    seed: u64,
    pool: Pool,
}

/// How much one launch measures.
#[derive(Clone, Copy, Debug)]
struct Extent {
    samples: u64,
    /// Factor for the usual number of messages per sample.
    times: u64,
}

/// Parameters of one launch.
#[derive(Clone, Copy, Debug)]
struct Launch {
    kind: Kind,
    samples: u64,
    inner: u64,
    bytes: u64,
}

impl Ring {
    fn open(nodes: &Nodes, path: Path, bytes_max: u64, gpus: u32) -> Result<Self> {
        let pool = Pool::open(
            &nodes.addresses,
            nodes.key.as_ref(),
            OPEN_MAX,
            penstock_client::notice::print,
        );
        if let Some((_, error)) = pool.absent().first() {
            return Err(error.clone().into());
        }
        let seats = Seat::take(&pool, gpus)?;
        let over: Vec<_> = seats.iter().map(|seat| (&seat.context, &seat.device)).collect();
        let options = HeapOptions { timeout: WAIT_MAX, force_proxy: Some(path == Path::Proxy) };
        let bytes = AT_MESSAGES + 2 * window_bytes_max(bytes_max);
        Ok(Self {
            path,
            heap: Heap::create_over(&over, bytes, options)?,
            ticks_per_us: seats.first().and_then(Seat::ticks_per_us),
            seats,
            workers: pool.nodes().iter().map(|node| node.description().worker).collect(),
            bytes_max,
            epoch: 0,
            seed: 0,
            pool,
        })
    }

    fn name(&self) -> String {
        let mut names: Vec<String> =
            self.heap.devices().map(|device| device.text(CL_DEVICE_NAME)).collect();
        names.dedup();
        names.join(" and ")
    }

    /// Returns the connection between the devices, as the heap describes it.
    fn way(&self) -> String {
        let paths = self.heap.paths();
        let to_other =
            paths.first().and_then(|row| row.get(1)).map_or_else(String::new, ToString::to_string);
        let nodes_of = |pe: usize| self.seats.get(pe).map(|seat| seat.device.node());
        if nodes_of(0) == nodes_of(1) {
            return format!("{to_other} in one worker");
        }
        let first = self.pool.nodes().first();
        let transport = first.map_or("no link", |node| node.address().transport_name());
        format!("{to_other} between workers that meet over {transport}")
    }

    fn source(&self) -> u64 {
        AT_MESSAGES
    }

    fn landing(&self) -> u64 {
        AT_MESSAGES + window_bytes_max(self.bytes_max)
    }

    /// Returns the extent that takes `seconds`. Also warms up everything that is used.
    fn extent_of(&mut self, kind: Kind, bytes: u64, seconds: f64) -> Result<Extent> {
        let mut extent = Extent { samples: WARM_SAMPLES, times: 1 };
        for part in [0.02, 1.0] {
            let run = self.run(kind, bytes, extent)?;
            #[expect(clippy::cast_precision_loss, reason = "a quotient")]
            let each =
                run.samples.mean() * run.count as f64 / (extent.samples * extent.times) as f64;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a number of samples, kept within limits"
            )]
            let wanted = (part * seconds * 1e6 / each.max(1e-3)) as u64;
            let times = wanted.div_ceil(SAMPLES_MAX).clamp(1, TIMES_MAX);
            extent = Extent { samples: (wanted / times).clamp(SAMPLES_MIN, SAMPLES_MAX), times };
        }
        Ok(extent)
    }

    /// Runs rounds in which each PE checks that all others have come.
    fn check_barrier(&mut self) -> Result<u64> {
        let launch = Launch { kind: Kind::Barrier, samples: WARM_SAMPLES, inner: 16, bytes: 8 };
        Ok(self.launch(launch)?.checked)
    }

    fn run(&mut self, kind: Kind, bytes: u64, extent: Extent) -> Result<Run> {
        let Extent { samples, times } = extent;
        let inner = times
            * match kind {
                Kind::Bandwidth => messages_of(kind, bytes),
                Kind::PingPong => (TRIP_BYTES / bytes.max(1)).clamp(TRIPS.0, TRIPS.1),
                Kind::Barrier => BARRIERS,
            };
        if kind != Kind::Barrier {
            self.seed += 1;
            let mut content = vec![0; to_usize(bytes * window_of(bytes))?];
            fill(&mut content, self.seed);
            self.write(0, self.source(), &content)?;
        }
        let mut run = self.launch(Launch { kind, samples, inner, bytes })?;
        run.checked += match kind {
            Kind::PingPong => self.compare(0, bytes, 1)? + self.compare(1, bytes, 1)?,
            Kind::Bandwidth => self.compare(1, bytes, window_of(bytes))?,
            Kind::Barrier => 0,
        };
        Ok(run)
    }

    /// Compares all bytes that came to a PE, word by word. The kernels have compared the stamps.
    fn compare(&self, pe: usize, bytes: u64, messages: u64) -> Result<u64> {
        let found = self.read(pe, self.landing(), bytes * messages)?;
        match wrong_words(&found, self.seed, to_usize(bytes)? / 8) {
            None => Ok((bytes / 8).saturating_sub(2) * messages),
            Some(Differences { count, found, expected }) => {
                Err(Error::Wrong { path: self.path.name(), bytes, count, found, expected })
            }
        }
    }

    fn launch(&mut self, launch: Launch) -> Result<Run> {
        let Launch { kind, samples, inner, bytes } = launch;
        let window = window_of(bytes);
        let numbers =
            [samples, inner, bytes, window, self.source(), self.landing(), self.seed, self.epoch];
        self.seats.iter().for_each(|seat| seat.set(kind, &self.heap, &numbers));
        let seats = self.seats.iter();
        let launches = seats.map(|seat| seat.launch(kind)).collect::<Vec<_>>();
        let core_ns = self.core_ns()?;
        let began = Instant::now();
        let events = self.heap.launch_each(&launches, &[])?;
        let statuses: Vec<_> = events.iter().map(penstock_client::Event::wait).collect();
        let us = began.elapsed().as_secs_f64() * 1e6;
        let core_ns = self.core_ns()?.saturating_sub(core_ns);
        self.epoch += samples * inner;
        if let Some(status) = statuses.iter().find(|status| **status != Status::OK) {
            return Err(self.in_vain(format!("a launch ended with {status}")));
        }
        let checked = self.results(launch)?;
        let ways = if kind == Kind::PingPong { 2 } else { 1 };
        #[expect(clippy::cast_precision_loss, reason = "quotients")]
        let (one, count, core_ns) =
            ((inner * ways) as f64, (samples * inner * ways) as f64, core_ns as f64);
        let samples_us = self.times(samples)?.unwrap_or_else(|| vec![us / count * one]);
        Ok(Run {
            samples: Samples::of(samples_us.into_iter().map(|us| us / one).collect()),
            count: samples * inner * ways,
            core_seconds: Some(core_ns * 1e-9),
            checked,
        })
    }

    /// Reads the kernels' results. Returns the number of stamps that they compared.
    fn results(&self, launch: Launch) -> Result<u64> {
        let mut checked = 0;
        for pe in 0..self.seats.len() {
            let words = words(&self.read(pe, AT_RESULT, 8 * RESULT_WORDS as u64)?);
            let [status, done, count, wrong, found, expected] = *words.as_slice() else {
                return Err(self.in_vain("its results cannot be read".to_owned()));
            };
            if status != 0 || done != launch.samples {
                return Err(self.in_vain(format!(
                    "PE {pe} gave up in sample {done} of {} ({})",
                    launch.samples,
                    verdict(status)
                )));
            }
            if wrong > 0 {
                let bytes = launch.bytes;
                return Err(Error::Wrong {
                    path: self.path.name(),
                    bytes,
                    count: wrong,
                    found,
                    expected,
                });
            }
            checked += count;
        }
        Ok(checked)
    }

    fn in_vain(&self, how: String) -> Error {
        let why = self
            .heap
            .aborted()
            .map_or_else(String::new, |reason| format!("; the heap was aborted: {reason}"));
        Error::Wait { path: self.path.name(), how: how + &why }
    }

    /// Returns the times of the samples in microseconds. If kernels have no clock, returns `None`:
    /// then the whole launch is one sample.
    fn times(&self, samples: u64) -> Result<Option<Vec<f64>>> {
        let Some(ticks_per_us) = self.ticks_per_us else { return Ok(None) };
        let stamps = words(&self.read(0, AT_STAMPS, 8 * (samples + 1))?);
        let times = stamps.iter().zip(stamps.iter().skip(1)).map(|(first, next)| {
            #[expect(clippy::cast_precision_loss, reason = "ticks of a sample")]
            let ticks = next.wrapping_sub(*first) as f64;
            ticks / ticks_per_us
        });
        Ok(stamps.first().is_some_and(|first| *first != 0).then(|| times.collect()))
    }

    /// Returns the core time of this process and of all workers.
    fn core_ns(&self) -> Result<u64> {
        let mut all = Duration::ZERO;
        for pid in self.workers.iter().copied().chain([std::process::id()]) {
            all += penstock_energy::cores::of_process(pid)?;
        }
        Ok(u64::try_from(all.as_nanos()).unwrap_or(u64::MAX))
    }

    fn queue(&self, pe: usize) -> Result<&Arc<Queue>> {
        let seat =
            self.seats.get(pe).ok_or_else(|| Error::Absent(format!("there is no PE {pe}")))?;
        Ok(&seat.queue)
    }

    fn write(&self, pe: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        let queue = self.queue(pe)?;
        self.heap.write(queue, offset, &Given(bytes), &[], Want::Nothing)?;
        Ok(queue.finish()?)
    }

    fn read(&self, pe: usize, offset: u64, size: u64) -> Result<Vec<u8>> {
        let queue = self.queue(pe)?;
        let bytes = Arc::new(Lock::new(vec![0; to_usize(size)?]));
        let event = self.heap.read(queue, Range { offset, size }, Box::new(bytes.clone()), &[])?;
        let status = event.map_or(Status::OK, |event| event.wait());
        if status != Status::OK {
            return Err(self.in_vain(format!("reading what came ended with {status}")));
        }
        Ok(std::mem::take(&mut *bytes.lock()))
    }
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

fn to_usize(number: u64) -> Result<usize> {
    usize::try_from(number)
        .map_err(|_| Error::Absent(format!("{number} bytes are more than this host has")))
}

/// Names the status of a verb of `ggas.h`.
fn verdict(status: u64) -> String {
    match status.cast_signed() {
        -1 => "GGAS_TIMEOUT".to_owned(),
        -2 => "GGAS_ABORTED".to_owned(),
        -3 => "GGAS_INVALID".to_owned(),
        other => format!("status {other}"),
    }
}

/// Compares messages of `each` words with those of `seed`, except for the first and the last word
/// of each message, which are its stamps.
fn wrong_words(bytes: &[u8], seed: u64, each: usize) -> Option<Differences> {
    let (words, each) = (words(bytes), each.max(1) as u64);
    let is_stamp = |index: u64| index.is_multiple_of(each) || (index + 1).is_multiple_of(each);
    let content = (0_u64..).zip(words).filter(|(index, _)| !is_stamp(*index));
    Differences::among(content.map(|(index, found)| (found, word_of(seed, index))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_no_content() {
        let mut bytes = vec![0; 64];
        fill(&mut bytes, 3);
        for stamp in [0, 24, 32, 56] {
            bytes[stamp] ^= 1;
        }
        assert_eq!(wrong_words(&bytes, 3, 4), None);
        assert!(wrong_words(&bytes, 3, 8).is_some());
        bytes[9] ^= 1;
        assert_eq!(wrong_words(&bytes, 3, 4).unwrap().count, 1);
    }

    #[test]
    fn the_kernels_know_the_same_places() {
        for (name, value) in [("AT_RESULT", AT_RESULT), ("AT_STAMPS", AT_STAMPS)] {
            assert!(seat::SOURCE.contains(&format!("#define {name} {value}\n")), "{name}");
        }
    }
}
