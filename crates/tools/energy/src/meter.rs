//! The meter reads all channels at start and stop, and some in between. Only this module reads the
//! clock of measurements.

use std::fmt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use penstock_process::{Guard, Lock, Signal};
use serde::Serialize;

use crate::component::{Class, Method, Source};
use crate::cores::{self, CoreSeconds, Moment, Usage};
use crate::error::Error;
use crate::model::PowerModel;
use crate::options::Options;
use crate::reason::Reason;
use crate::report::{self, Report};
use crate::sources::{self, ChannelInfo, LiveChannel};
use crate::span::Span;
use crate::tally::Tally;

/// Maximum time for measuring idle power, which is meant for the moments around a measurement.
const IDLE_S_MAX: f64 = 600.0;

/// A channel of the node, as found when the meter was opened.
#[derive(Clone, Debug, Serialize)]
pub struct Channel {
    /// Name of the measured component.
    pub component: String,
    pub class: Class,
    pub source: Source,
    pub method: Method,
    /// The file, event or function, and what to know about it.
    pub detail: String,
    /// Seconds between two changes of the value, as far as known.
    pub step_s: f64,
    /// Reason why the channel cannot be read, or `None` if it can.
    pub unavailable: Option<Reason>,
}

/// Measures energy and core-seconds between [`Meter::start`] and [`Meter::stop`].
pub struct Meter {
    shared: Arc<SampledChannels>,
    options: Options,
    infos: Vec<ChannelInfo>,
    epoch: Instant,
    running: Option<RunningMeasurement>,
    before: Option<Span>,
    measured: Option<Span>,
    after: Option<Span>,
    model: Option<PowerModel>,
}

/// State that the meter shares with its thread.
#[derive(Debug)]
struct SampledChannels {
    rows: Lock<ChannelRows>,
    stopped: Signal,
}

#[derive(Debug)]
struct ChannelRows {
    all: Vec<ChannelRow>,
    is_running: bool,
}

#[derive(Debug)]
struct ChannelRow {
    method: Method,
    state: Result<(LiveChannel, Tally), Reason>,
}

/// State between start and stop.
#[derive(Debug)]
struct RunningMeasurement {
    began: Instant,
    cores: Moment,
    sampler: Option<JoinHandle<()>>,
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("running", &self.running).finish_non_exhaustive()
    }
}

impl Meter {
    /// Finds the node's channels. A node without channels is not an error: [`Meter::channels`]
    /// gives the reasons. Takes milliseconds, or [`Options::watch`] if a counter is dead, and keeps
    /// one core busy meanwhile.
    #[must_use]
    pub fn open(options: &Options) -> Self {
        let mut infos = Vec::new();
        let mut all = Vec::new();
        for found in sources::find(options) {
            let method = found.info.method;
            let state = found.state.map(|live| {
                let tally = Tally::new(method, live.scale);
                (live, tally)
            });
            infos.push(found.info);
            all.push(ChannelRow { method, state });
        }
        Self {
            shared: Arc::new(SampledChannels {
                rows: Lock::new(ChannelRows { all, is_running: false }),
                stopped: Signal::new(),
            }),
            options: options.clone(),
            infos,
            epoch: Instant::now(),
            running: None,
            before: None,
            measured: None,
            after: None,
            model: None,
        }
    }

    /// Returns all channels, the most trusted sources first, as in [`Report::figures`].
    #[must_use]
    pub fn channels(&self) -> Vec<Channel> {
        let rows = self.shared.rows();
        let channel = |(info, row): (&ChannelInfo, &ChannelRow)| Channel {
            component: info.component.name.clone(),
            class: info.component.class,
            source: info.source,
            method: info.method,
            detail: info.detail.clone(),
            step_s: info.step.as_secs_f64(),
            unavailable: row.state.as_ref().err().cloned(),
        };
        self.infos.iter().zip(&rows.all).map(channel).collect()
    }

    /// Adds a model's figures to reports, in fields of their own.
    pub fn set_model(&mut self, model: Option<PowerModel>) {
        self.model = model;
    }

    /// Measures the power of the idle node for `time`, and sleeps meanwhile. The result is the idle
    /// power before a measurement, or the one after it if [`Meter::stop`] was called. Both make the
    /// figures net of idle.
    ///
    /// # Errors
    /// [`Error::Order`] during a measurement; [`Error::Span`] if `time` is zero or too long;
    /// [`Error::Thread`].
    pub fn idle(&mut self, time: Duration) -> Result<(), Error> {
        let given = time.as_secs_f64();
        if time.is_zero() || given > IDLE_S_MAX {
            return Err(Error::Span {
                what: "the time of idleness",
                min: 0.0,
                max: IDLE_S_MAX,
                given,
            });
        }
        self.begin("idle power cannot be measured while a measurement runs")?;
        thread::sleep(time);
        let span = self.end(None);
        if self.measured.is_none() {
            self.before = span
        } else {
            self.after = span
        }
        Ok(())
    }

    /// Starts a measurement. Forgets the earlier one, but not the idle power from before it.
    ///
    /// # Errors
    /// [`Error::Order`] if a measurement runs; [`Error::Thread`].
    pub fn start(&mut self) -> Result<(), Error> {
        self.begin("the meter runs already")?;
        self.measured = None;
        self.after = None;
        Ok(())
    }

    /// Stops the measurement.
    ///
    /// # Errors
    /// [`Error::Order`] if no measurement runs.
    pub fn stop(&mut self) -> Result<(), Error> {
        self.stop_with(None)
    }

    /// Like [`Meter::stop`], with the core-seconds of a command.
    pub(crate) fn stop_with(&mut self, usage: Option<Usage>) -> Result<(), Error> {
        let span = self.end(usage).ok_or(Error::Order("the meter does not run"))?;
        self.measured = Some(span);
        Ok(())
    }

    /// Returns the figures between start and stop.
    ///
    /// # Errors
    /// [`Error::Order`] if nothing was measured yet, or a measurement runs.
    pub fn report(&self) -> Result<Report, Error> {
        if self.running.is_some() {
            return Err(Error::Order("the meter still runs"));
        }
        let span = self.measured.as_ref().ok_or(Error::Order("nothing was measured yet"))?;
        Ok(self.report_of(span))
    }

    /// Returns the figures from the start until now. The measurement goes on. Reads each channel
    /// once. For callers that keep a meter running.
    ///
    /// # Errors
    /// [`Error::Order`] if no measurement runs.
    pub fn report_so_far(&self) -> Result<Report, Error> {
        let running = self.running.as_ref().ok_or(Error::Order("the meter does not run"))?;
        let (seconds, cores) = self.since(running);
        self.shared.rows().read(self.epoch, |_| true);
        Ok(self.report_of(&self.span(seconds, cores, None)))
    }

    fn report_of(&self, span: &Span) -> Report {
        report::make(
            &self.infos,
            self.before.as_ref(),
            span,
            self.after.as_ref(),
            self.model.as_ref(),
        )
    }

    fn begin(&mut self, refusal: &'static str) -> Result<(), Error> {
        if self.running.is_some() {
            return Err(Error::Order(refusal));
        }
        let mut rows = self.shared.rows();
        rows.clear();
        rows.read(self.epoch, |_| true);
        rows.is_running = true;
        let period = rows.period(self.options.interval);
        drop(rows);
        let sampler =
            period.map(|period| self.start_sampler(period)).transpose().map_err(|error| {
                self.shared.rows().is_running = false;
                Error::Thread(error)
            })?;
        // Last at the start and first at the end, so that reading the channels is not included.
        let (cores, began) = (Moment::now(&self.options.roots), Instant::now());
        self.running = Some(RunningMeasurement { began, cores, sampler });
        Ok(())
    }

    fn start_sampler(&self, period: Duration) -> std::io::Result<JoinHandle<()>> {
        let (shared, epoch) = (Arc::clone(&self.shared), self.epoch);
        penstock_process::start("penstock-energy", move || shared.sample(epoch, period))
    }

    /// Ends the open span, if there is one.
    fn end(&mut self, usage: Option<Usage>) -> Option<Span> {
        let mut running = self.running.take()?;
        let (seconds, cores) = self.since(&running);
        self.shared.rows().is_running = false;
        self.shared.stopped.notify_all();
        if let Some(sampler) = running.sampler.take() {
            // The thread ends at once. A failure means that reading a sensor panicked; then its
            // channels lack readings.
            _ = sampler.join();
        }
        self.shared.rows().read(self.epoch, |_| true);
        Some(self.span(seconds, cores, usage))
    }

    /// Returns the seconds and the core-seconds from the start until now.
    fn since(&self, running: &RunningMeasurement) -> (f64, CoreSeconds) {
        let seconds = running.began.elapsed().as_secs_f64();
        (seconds, cores::between(&running.cores, &Moment::now(&self.options.roots)))
    }

    fn span(&self, seconds: f64, mut cores: CoreSeconds, usage: Option<Usage>) -> Span {
        if let Some(usage) = usage {
            cores.set_usage("command", usage);
        }
        let rows = self.shared.rows();
        let taken = |row: &ChannelRow| match &row.state {
            Ok((_, tally)) => tally.taken(self.options.watch),
            Err(reason) => Err(reason.clone()),
        };
        Span { seconds, taken: rows.all.iter().map(taken).collect(), cores }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.end(None);
    }
}

impl SampledChannels {
    fn rows(&self) -> Guard<'_, ChannelRows> {
        // A panic cannot leave a tally incomplete.
        self.rows.lock()
    }

    /// Body of the thread: reads the sampled channels periodically until the measurement stops.
    fn sample(&self, epoch: Instant, period: Duration) {
        let mut rows = self.rows();
        let mut due = Instant::now() + period;
        while rows.is_running {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                rows.read(epoch, ChannelRow::is_sampled);
                // From now on: readings that a busy host missed are not made up for.
                due = Instant::now() + period;
                continue;
            }
            (rows, _) = self.stopped.wait_timeout(rows, left);
        }
    }
}

impl ChannelRows {
    fn clear(&mut self) {
        for row in &mut self.all {
            if let Ok((live, tally)) = &mut row.state {
                *tally = Tally::new(row.method, live.scale);
            }
        }
    }

    fn read(&mut self, epoch: Instant, which: impl Fn(&ChannelRow) -> bool) {
        for row in self.all.iter_mut().filter(|row| which(row)) {
            if let Ok((live, tally)) = &mut row.state {
                let value = live.sensor.read();
                tally.add(epoch.elapsed(), value);
            }
        }
    }

    /// Returns the interval at which channels must be read between start and stop, if any must.
    fn period(&self, interval: Duration) -> Option<Duration> {
        let due = |row: &ChannelRow| match (&row.state, row.method) {
            (Ok(_), Method::Samples) => Some(interval),
            (Ok((live, _)), Method::Counter) => Tally::reading_due(live.scale),
            (Err(_), _) => None,
        };
        let soonest = self.all.iter().filter_map(due).min()?;
        Some(soonest.clamp(Options::INTERVAL_MIN, Options::INTERVAL_MAX))
    }
}

impl ChannelRow {
    fn is_sampled(&self) -> bool {
        let wraps = |live: &LiveChannel| live.scale.wraps_after.is_some();
        self.state.as_ref().is_ok_and(|(live, _)| self.method == Method::Samples || wraps(live))
    }
}
