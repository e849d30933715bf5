//! Tests of the recorder, and of the graphs, traces and watchdog that use it.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use common::{Cluster, Host};
use penstock_process::Lock;
use penstock_trial::{Folder, Need, skip};
use serde_json::Value;
use water::backend::{Backend, Ended};
use water::clock::Real;
use water::command::{
    Arg, Code, Command, CommandId, DeviceId, DeviceInfo, IndexSpace, ObjectId, Rank, Times,
};
use water::doorbell::Doorbell;
use water::record::watch::Watchdog;
use water::record::{self, Recorder, Settings, output};
use water::request::Request;
use water::root::Root;
use water::runtime::{Runtime, recording};
use water::transport::loopback::Loopback;

fn recording() -> Settings {
    Settings { record: true, ..Settings::default() }
}

/// The commands that a program issued.
#[derive(Default)]
struct Issued {
    waits: BTreeMap<u64, BTreeSet<u64>>,
    ranks: BTreeMap<u64, Rank>,
    ids: Vec<CommandId>,
}

impl Issued {
    fn issue(
        &mut self,
        root: &mut Root,
        rank: Rank,
        waits: &[CommandId],
        command: Command,
    ) -> CommandId {
        let id = root.issue(waits.to_vec(), Request::new(DeviceId::new(rank, 0), command));
        self.waits.insert(id.0, waits.iter().map(|id| id.0).collect());
        self.ranks.insert(id.0, rank);
        self.ids.push(id);
        id
    }

    /// Sends the same bytes to a rank as to all others, runs a kernel, and reads the result back.
    fn rank(&mut self, root: &mut Root, rank: Rank, kernel: &str, bytes: &[u8], result: &mut [u8]) {
        let (buffer, size, name) = (root.object(), bytes.len() as u64, kernel);
        let made = self.issue(root, rank, &[], Command::CreateBuffer { buffer, size, flags: 1 });
        let (kernel, code) = (root.object(), Code::Source(Vec::new()));
        let create =
            Command::CreateKernel { kernel, code, name: name.into(), options: String::new() };
        let built = self.issue(root, rank, &[], create);
        let address = bytes.as_ptr().expose_provenance() as u64;
        let written =
            self.issue(root, rank, &[made], Command::Write { buffer, offset: 0, size, address });
        let range = IndexSpace::line(1, None);
        let args = vec![Arg::Buffer(buffer), Arg::Buffer(buffer), Arg::Bytes(vec![1])];
        let ran = self.issue(root, rank, &[built, written], Command::Run { kernel, range, args });
        let address = result.as_mut_ptr().expose_provenance() as u64;
        self.issue(root, rank, &[ran], Command::Read { buffer, offset: 0, size, address });
    }
}

/// Sends the same bytes to all ranks, runs a kernel on each, and reads the results back. One kernel
/// fails. All commands are in one batch, however slow the host is.
fn program(runtime: &Runtime, ranks: u32, size: usize) -> Issued {
    let mut issued = Issued::default();
    let bytes = vec![3_u8; size];
    let mut results = vec![vec![0_u8; size]; ranks as usize];
    runtime.with_root(|root| {
        for (rank, result) in (0..ranks).zip(&mut results) {
            let kernel = if rank + 1 == ranks { "fail" } else { "mix" };
            issued.rank(root, rank, kernel, &bytes, result);
        }
    });
    _ = runtime.wait(&issued.ids);
    recording::wait_for_reports(runtime);
    issued
}

/// Returns a cluster that records, and in which every broadcast gains.
fn cluster(ranks: u32) -> Cluster {
    let cluster = Cluster::new(ranks, 1);
    let link = water::root::cost::Link { latency_ns: 0.0, overhead_ns: 1e6, byte_ns: 1e5 };
    cluster.runtime().with_root(|root| root.set_link(link));
    recording::begin(cluster.runtime(), recording());
    cluster
}

/// A graph, parsed from its text.
#[derive(Debug, Default)]
struct Dot {
    /// Attributes of each node, and its cluster.
    nodes: BTreeMap<u64, (String, String)>,
    clusters: BTreeMap<String, String>,
    /// Whether each edge is bold.
    edges: BTreeMap<(u64, u64), bool>,
}

/// Parses the text of a graph line by line. Panics at an unknown line.
fn parse(text: &str) -> Dot {
    let mut dot = Dot::default();
    let mut lines = text.lines();
    assert!(lines.next().unwrap().starts_with("digraph "));
    let (mut cluster, mut is_closed) = (None::<String>, false);
    let number = |name: &str| -> u64 {
        name.trim().strip_prefix('c').unwrap_or_else(|| panic!("{name}")).parse().unwrap()
    };
    for line in lines {
        assert!(!is_closed, "after the end: {line}");
        let line = line.trim();
        if let Some(name) = line.strip_prefix("subgraph ") {
            cluster = Some(name.strip_suffix(" {").unwrap().to_owned());
        } else if let (Some(name), Some(label)) = (&cluster, line.strip_prefix("label=")) {
            dot.clusters.insert(
                name.clone(),
                label.trim_matches(|character| character == '"' || character == ';').to_owned(),
            );
        } else if line == "}" {
            is_closed = cluster.take().is_none();
        } else if line.starts_with("graph [") || line.starts_with("node [") {
            assert!(line.ends_with("];"));
        } else {
            let (head, attributes) = line.split_once(" [").unwrap_or_else(|| panic!("{line}"));
            let attributes = attributes.strip_suffix("];").unwrap_or_else(|| panic!("{line}"));
            assert_eq!(
                attributes.replace("\\\"", "").matches('"').count() % 2,
                0,
                "quotes: {line}"
            );
            match head.split_once(" -> ") {
                Some((from, to)) => {
                    let edge = (number(from), number(to));
                    let is_new =
                        dot.edges.insert(edge, attributes.contains("penwidth=3")).is_none();
                    assert!(is_new, "twice: {line}");
                }
                None => {
                    let inside = cluster.clone().expect("all nodes are in clusters");
                    let is_new =
                        dot.nodes.insert(number(head), (attributes.to_owned(), inside)).is_none();
                    assert!(is_new, "twice: {line}");
                }
            }
        }
    }
    assert!(is_closed);
    dot
}

/// Checks that Graphviz reads the file, if Graphviz is installed.
fn graphviz_reads(path: &Path) {
    match process::Command::new("dot").arg("-Tsvg").arg(path).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr))
        }
        Err(_) => skip(Need::Graphviz, "Graphviz is not installed"),
    }
}

/// Checks that the bold nodes are one path, followed from its end against the edges.
fn check_path(dot: &Dot) {
    let bold: BTreeSet<u64> = dot
        .nodes
        .iter()
        .filter(|(_, (attributes, _))| attributes.contains("penwidth=3"))
        .map(|(id, _)| *id)
        .collect();
    let edges: Vec<(u64, u64)> =
        dot.edges.iter().filter(|(_, bold)| **bold).map(|(edge, _)| *edge).collect();
    let ends: Vec<&u64> =
        bold.iter().filter(|id| !edges.iter().any(|(from, _)| from == *id)).collect();
    assert!(bold.len() >= 3, "{bold:?}");
    assert_eq!(ends.len(), 1, "one end: {ends:?}");
    assert!(edges.iter().all(|(from, to)| bold.contains(from) && bold.contains(to)));
    assert!(edges.len() >= bold.len() - 1);
}

#[test]
fn graphs_have_the_programs_commands_and_what_the_ranks_got() {
    let folder = Folder::new("water-graphs");
    let cluster = cluster(5);
    let issued = program(cluster.runtime(), 5, 100_000);
    let path = folder.file("run.dot");
    recording::dump(cluster.runtime(), &path).unwrap();
    let (text, after) = (
        std::fs::read_to_string(&path).unwrap(),
        std::fs::read_to_string(output::after(&path)).unwrap(),
    );
    graphviz_reads(&path);
    graphviz_reads(&output::after(&path));
    let dot = parse(&text);
    assert_eq!(dot.nodes.keys().collect::<Vec<_>>(), issued.waits.keys().collect::<Vec<_>>());
    let expected: BTreeSet<(u64, u64)> =
        issued.waits.iter().flat_map(|(id, waits)| waits.iter().map(|wait| (*wait, *id))).collect();
    assert_eq!(dot.edges.keys().copied().collect::<BTreeSet<_>>(), expected);
    for (id, (_, cluster)) in &dot.nodes {
        assert_eq!(*cluster, format!("cluster_{}", issued.ranks[id]), "command {id}");
    }
    assert_eq!(dot.clusters.len(), 5);
    assert!(dot.clusters["cluster_2"].starts_with("rank 2 ("));
    check_path(&dot);
    let labelled =
        |text: &str| dot.nodes.values().filter(|(attributes, _)| attributes.contains(text)).count();
    assert_eq!(
        (labelled("run_kernel"), labelled("write_buffer"), labelled("97.7 KiB")),
        (5, 5, 15)
    );
    assert_eq!(labelled("\\nfailed"), 2, "the kernel that fails, and its read");
    // After replacement the bytes leave the program once, and then go from rank to rank.
    let dot = parse(&after);
    check_path(&dot);
    let find = |text: &str| {
        dot.nodes
            .iter()
            .filter(|(_, (attributes, _))| attributes.contains(text))
            .map(|(id, _)| *id)
            .collect::<Vec<_>>()
    };
    assert!(!find(" forward").is_empty(), "{after}");
    let feeds = |id: &u64| {
        dot.edges.keys().filter(|(from, to)| to == id && dot.nodes.contains_key(from)).count()
    };
    assert!(
        find(" forward").iter().all(|id| feeds(id) >= 2),
        "its buffer's creation, and who sends the bytes: {after}"
    );
    recording::dump(cluster.runtime(), &path).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "the same run, the same text");
}

#[test]
fn commands_of_one_job_are_told_with_it() {
    let folder = Folder::new("water-also");
    let cluster = Cluster::new(2, 2);
    recording::begin(cluster.runtime(), recording());
    let bytes = vec![1_u8; 5000];
    let mut ids = Vec::new();
    for device in 0..2 {
        let issue = |waits: Vec<CommandId>, command| {
            cluster
                .runtime()
                .with_root(|root| {
                    root.issue(waits, Request::new(DeviceId::new(1, device), command))
                })
                .unwrap()
        };
        let buffer = cluster.runtime().with_root(Root::object).unwrap();
        let made = issue(Vec::new(), Command::CreateBuffer { buffer, size: 5000, flags: 1 });
        let address = bytes.as_ptr().expose_provenance() as u64;
        ids.extend([
            made,
            issue(vec![made], Command::Write { buffer, offset: 0, size: 5000, address }),
        ]);
    }
    cluster.runtime().wait(&ids).unwrap();
    let path = folder.file("run.dot");
    recording::dump(cluster.runtime(), &path).unwrap();
    assert_eq!(parse(&std::fs::read_to_string(&path).unwrap()).nodes.len(), 4);
    let recorded = |root: &mut Root| {
        let recorder = root.recorder().unwrap();
        assert!(
            recorder
                .commands()
                .values()
                .all(|step| step.outcome == Some(Ok(())) && step.times.ended > 0)
        );
        recorder.jobs().values().map(|job| job.also.len()).sum::<usize>()
    };
    let also = cluster.runtime().with_root(recorded).unwrap();
    let after = std::fs::read_to_string(output::after(&path)).unwrap();
    assert_eq!(also, after.matches("(and ").count());
}

#[test]
fn a_trace_has_all_jobs_on_rows_that_do_not_overlap_arrows_and_counters() {
    let cluster = cluster(4);
    let issued = program(cluster.runtime(), 4, 100_000);
    let (mut text, mut jobs) = (Vec::new(), 0);
    cluster.runtime().with_root(|root| {
        record::trace::write(root.recorder().unwrap(), &mut text).unwrap();
        jobs = root.recorder().unwrap().jobs().len();
    });
    let trace: Value = serde_json::from_slice(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    let row = |event: &Value| (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
    let named = |name: &str| -> BTreeMap<(u64, u64), String> {
        let names =
            of("M").into_iter().filter(|event| event["name"] == name && event["tid"].is_u64());
        names
            .map(|event| (row(event), event["args"]["name"].as_str().unwrap().to_owned()))
            .collect()
    };
    let threads = named("thread_name");
    let processes = of("M").into_iter().filter(|event| event["name"] == "process_name").count();
    assert_eq!(processes, 4);
    for wanted in ["scheduler", "link in", "link out", "device 0 (bytes)"] {
        let ranks: BTreeSet<u64> =
            threads.iter().filter(|(_, name)| *name == wanted).map(|((pid, _), _)| *pid).collect();
        assert_eq!(ranks.len(), 4, "{wanted}: {threads:?}");
    }
    // Checks of the spans.
    let mut rows: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    let (mut kernels, mut drawn) = (0, 0);
    for span in of("X") {
        let (start, length) = (span["ts"].as_f64().unwrap(), span["dur"].as_f64().unwrap());
        assert!(threads.contains_key(&row(span)) && length > 0.0 && start >= 0.0, "{span}");
        rows.entry(row(span)).or_default().push((start, start + length));
        kernels += usize::from(span["cat"] == "run_kernel");
        drawn += usize::from(span["args"]["id"].is_u64());
        if span["cat"] == "run_kernel" {
            assert!(threads[&row(span)].starts_with("device 0 (bytes)"), "{span}");
        }
    }
    assert_eq!((kernels, drawn), (4, jobs));
    for (row, mut spans) in rows {
        spans.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 1e-6), "{row:?}: {spans:?}");
    }
    // Checks of the arrows.
    let (begins, ends) = (of("s"), of("f"));
    assert_eq!(begins.len(), ends.len());
    let by_id: BTreeMap<u64, &Value> =
        ends.into_iter().map(|event| (event["id"].as_u64().unwrap(), event)).collect();
    assert_eq!(by_id.len(), begins.len());
    for begin in &begins {
        let end = by_id[&begin["id"].as_u64().unwrap()];
        assert!(end["ts"].as_f64() >= begin["ts"].as_f64(), "{begin} {end}");
        assert!(threads.contains_key(&row(begin)) && threads.contains_key(&row(end)));
    }
    let drawn: BTreeSet<(u64, u64)> = begins
        .iter()
        .map(|event| {
            (event["args"]["from"].as_u64().unwrap(), event["args"]["to"].as_u64().unwrap())
        })
        .collect();
    for (id, waits) in &issued.waits {
        // A read has the waits of its part on the device's rank.
        let is_read = !waits.is_empty() && *id == issued.ids[issued.ids.len() - 1].0;
        assert!(
            is_read
                || waits.iter().all(|wait| drawn.contains(&(*wait, *id)) || issued.ranks[id] != 0),
            "{id}"
        );
    }
    assert!(begins.iter().any(|event| event["name"] == "bytes" && event["pid"] == 0));
    counters_come_back_to_0(&of("C"));
}

fn counters_come_back_to_0(counters: &[&Value]) {
    let mut last: BTreeMap<(u64, String), i64> = BTreeMap::new();
    for counter in counters {
        let name = counter["name"].as_str().unwrap().to_owned();
        let value = counter["args"].as_object().unwrap().values().next().unwrap().as_i64().unwrap();
        assert!(value >= 0, "{counter}");
        last.insert((counter["pid"].as_u64().unwrap(), name), value);
    }
    assert!(
        last.keys().any(|(_, name)| name == "bytes in flight")
            && last.keys().any(|(_, name)| name == "queue depth")
    );
    assert!(last.values().all(|value| *value == 0), "{last:?}");
}

#[test]
fn beyond_the_limit_steps_are_counted_and_the_outputs_say_so() {
    let cluster = Cluster::new(2, 1);
    let ranks = cluster.runtime().ranks();
    cluster
        .runtime()
        .with_root(|root| root.set_recorder(Recorder::new(recording(), &ranks).with_steps_max(7)));
    program(cluster.runtime(), 2, 100);
    cluster.runtime().drain();
    let check = |root: &mut Root| {
        let recorder = root.recorder().unwrap();
        assert_eq!((recorder.commands().len(), recorder.jobs().len()), (7, 7));
        assert!(recorder.forgotten() >= 3, "{}", recorder.forgotten());
        let (mut dot, mut trace) = (Vec::new(), Vec::new());
        record::dot::commands(recorder, &mut dot).unwrap();
        record::trace::write(recorder, &mut trace).unwrap();
        assert!(String::from_utf8(dot).unwrap().contains("not kept, the limit is 7"));
        let trace: Value = serde_json::from_slice(&trace).unwrap();
        assert!(trace["otherData"]["note"].as_str().unwrap().contains("not kept, the limit is 7"));
        assert!(record::summary::text(recorder).contains("not counted: 7 are kept"));
    };
    cluster.runtime().with_root(check);
}

#[test]
fn who_did_not_ask_for_a_record_is_told_how() {
    let cluster = Cluster::new(1, 1);
    let error = recording::dump(cluster.runtime(), Path::new("/nowhere/at/all.dot"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("WTR_RECORD=1") && error.contains("WTR_GRAPH"), "{error}");
    recording::begin(cluster.runtime(), recording());
    let error = recording::dump(cluster.runtime(), Path::new("/nowhere/at/all.dot"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("/nowhere/at/all.dot"), "{error}");
}

#[test]
fn variables_mean_what_they_say() {
    let of = |pairs: &[(&str, &str)]| {
        Settings::of(&|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    };
    assert_eq!(of(&[]).unwrap(), Settings::default());
    assert!(
        of(&[("WTR_RECORD", "1")]).unwrap().record && !of(&[("WTR_RECORD", "0")]).unwrap().record
    );
    assert!(
        of(&[("WTR_SUMMARY", "1")]).unwrap().record && of(&[("WTR_TRACE", "x")]).unwrap().record
    );
    assert_eq!(
        of(&[("WTR_WATCHDOG", "1.5")]).unwrap(),
        Settings { watchdog_ns: Some(1_500_000_000), ..Settings::default() }
    );
    for (name, value) in [
        ("WTR_WATCHDOG", "soon"),
        ("WTR_WATCHDOG", "-1"),
        ("WTR_WATCHDOG", "0"),
        ("WTR_RECORD", "perhaps"),
    ] {
        let error = of(&[(name, value)]).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(value), "{error}");
    }
    let settings = Settings { trace: Some("/nowhere/at/all.json".into()), ..recording() };
    assert!(settings.make_files().unwrap_err().to_string().contains("WTR_TRACE"));
}

/// Devices whose kernel `hang` only ends when the test lets it.
#[derive(Debug)]
struct Stuck {
    host: Host,
    hang: Option<ObjectId>,
    held: Vec<CommandId>,
    is_free: Arc<Lock<bool>>,
    bell: Arc<Lock<Doorbell>>,
}

impl Backend for Stuck {
    fn devices(&self) -> &[DeviceInfo] {
        self.host.devices()
    }

    fn orders(&self, _: u32, _: u32) -> bool {
        false
    }

    unsafe fn start(&mut self, id: CommandId, device: u32, command: &Command, after: &[CommandId]) {
        match command {
            Command::CreateKernel { kernel, name, .. } if name == "hang" => {
                self.hang = Some(*kernel)
            }
            Command::Run { kernel, .. } if self.hang == Some(*kernel) => {
                return self.held.push(id);
            }
            _ => {}
        }
        // SAFETY: the caller guarantees it.
        unsafe { self.host.start(id, device, command, after) };
    }

    fn poll(&mut self, ended: &mut Vec<Ended>) {
        self.host.poll(ended);
        if *self.is_free.lock() {
            let end = |operation| Ended { operation, outcome: Ok(()), times: Times::default() };
            ended.extend(self.held.drain(..).map(end));
        }
    }

    fn wake_with(&mut self, wake: Doorbell) {
        *self.bell.lock() = wake.clone();
        self.host.wake_with(wake);
    }
}

/// A run of two ranks, the first of which has the kernel that hangs.
struct StuckRun {
    runtime: Runtime,
    rank: JoinHandle<()>,
    is_free: Arc<Lock<bool>>,
    bell: Arc<Lock<Doorbell>>,
}

impl StuckRun {
    fn start(threaded: bool) -> Self {
        let mut ends = Loopback::ranks(2).into_iter();
        let (root, other) = (ends.next().unwrap(), ends.next().unwrap());
        let rank = std::thread::spawn(move || {
            Runtime::serve(Box::new(other), Box::new(Host::new(1)), Arc::new(Real::new()))
        });
        let (is_free, bell) =
            (Arc::new(Lock::new(false)), Arc::new(Lock::new(Doorbell::default())));
        let devices = Stuck {
            host: Host::new(1),
            hang: None,
            held: Vec::new(),
            is_free: Arc::clone(&is_free),
            bell: Arc::clone(&bell),
        };
        let runtime =
            Runtime::root(Box::new(root), Box::new(devices), Arc::new(Real::new()), threaded)
                .unwrap();
        Self { runtime, rank, is_free, bell }
    }
}

#[test]
fn the_watchdog_tells_once_what_waits_for_what() {
    for threaded in [true, false] {
        let StuckRun { runtime, rank, is_free, bell } = StuckRun::start(threaded);
        recording::begin(
            &runtime,
            Settings { watchdog_ns: Some(3_600_000_000_000), ..Settings::default() },
        );
        let (tell, reports) = (Arc::new(Lock::new(Vec::new())), Arc::new(Lock::new(0)));
        let (heard, count, free, ring) =
            (Arc::clone(&tell), Arc::clone(&reports), Arc::clone(&is_free), Arc::clone(&bell));
        let told = move |report: &str| {
            heard.lock().push(report.to_owned());
            *count.lock() += 1;
            // The test lets the kernel go on much later.
            let (free, ring) = (Arc::clone(&free), Arc::clone(&ring));
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                *free.lock() = true;
                ring.lock().ring();
            });
        };
        runtime.set_watchdog(Watchdog::new(3_000_000_000, Box::new(told)));
        let issue = |rank, waits: &[CommandId], command| {
            runtime
                .with_root(|root| {
                    root.issue(waits.to_vec(), Request::new(DeviceId::new(rank, 0), command))
                })
                .unwrap()
        };
        let kernel = runtime.with_root(Root::object).unwrap();
        let code = Code::Source(Vec::new());
        let made = issue(
            0,
            &[],
            Command::CreateKernel { kernel, code, name: "hang".into(), options: String::new() },
        );
        let range = IndexSpace::line(1, None);
        let ran = issue(0, &[made], Command::Run { kernel, range, args: Vec::new() });
        let buffer = runtime.with_root(Root::object).unwrap();
        let waiting = issue(1, &[ran], Command::CreateBuffer { buffer, size: 64, flags: 1 });
        runtime.wait(&[waiting]).unwrap();
        let reports = tell.lock().clone();
        let [report] = reports.as_slice() else { panic!("not reported once: {reports:?}") };
        let (free, blocked) = report.split_once("these wait for others:").unwrap();
        assert!(free.contains(&format!("{} run_kernel hang on rank 0", ran.0)), "{report}");
        assert!(
            blocked.contains(&format!("{} create_buffer buffer {}", waiting.0, buffer.0)),
            "{report}"
        );
        assert!(
            blocked.contains(&format!("waits for {} run_kernel hang on rank 0", ran.0)),
            "{report}"
        );
        let kept = runtime.with_root(|root| root.recorder().unwrap().jobs().len()).unwrap();
        assert_eq!(kept, 0, "the watchdog keeps nothing that has ended");
        runtime.end();
        rank.join().unwrap();
    }
}
