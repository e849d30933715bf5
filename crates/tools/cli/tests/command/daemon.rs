//! The command with a real daemon. The devices are those of the OpenCL platforms of this host. A
//! test that needs a device says so if there is none.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::{Home, stderr, stdout};
use penstock_link::Keys;
use penstock_trial::{Need, patience, skip, wait_for};

pub struct Daemon {
    child: Child,
    pub addresses: Vec<String>,
}

impl Daemon {
    fn end(&mut self, signal: &str) -> std::process::ExitStatus {
        Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status().unwrap();
        wait(&mut self.child)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Starts a daemon and waits until it listens. The result has the addresses that it prints.
fn serve(home: &Home, listen: &[&str]) -> Daemon {
    serve_with(home, &[], listen)
}

/// As [`serve`], with other options.
pub fn serve_with(home: &Home, options: &[&str], listen: &[&str]) -> Daemon {
    let mut args = ["serve"].iter().chain(options).copied().collect::<Vec<_>>();
    args.extend(listen.iter().flat_map(|address| ["--listen", address]));
    let mut child =
        home.penstock(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let addresses = (0..listen.len().max(1)).map(|_| {
        let line = lines.next().expect("the daemon ended").unwrap();
        line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}")).to_owned()
    });
    let addresses = addresses.collect();
    Daemon { child, addresses }
}

fn wait(child: &mut Child) -> std::process::ExitStatus {
    let mut status = None;
    wait_for("the end of a process", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// Counts the processes that have `path` in their environment or command line.
fn processes_of(path: &Path) -> usize {
    let has = |file: PathBuf| {
        fs::read(file)
            .is_ok_and(|text| String::from_utf8_lossy(&text).contains(&*path.to_string_lossy()))
    };
    let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    all.filter(|process| has(process.join("environ")) || has(process.join("cmdline"))).count()
}

fn assert_no_process(home: &Home) {
    wait_for("the end of all processes", || processes_of(&home.path) == 0);
}

#[test]
fn the_simulated_device_is_named_so_and_comes_to_nobody_by_accident() {
    let home = Home::new("simulated");
    let help = home.penstock(&["serve", "--help"]).output().unwrap();
    assert!(!stdout(&help).contains("simulated"), "{}", stdout(&help));
    let daemon = serve_with(&home, &["--platform", "null"], &[]);
    let output = home.penstock(&["devices", "--no-local", "--nodes", "local"]).output().unwrap();
    let told = stdout(&output);
    assert!(told.contains("Penstock null (simulated)") && told.contains("custom"), "{told}");
    assert!(told.contains("simulated device (Penstock null)"), "{told}");
    let output = home.penstock(&["status"]).output().unwrap();
    assert!(stdout(&output).contains("its only device is simulated"), "{}", stdout(&output));
    // CUDA programs cannot use it either.
    let addresses = [daemon.addresses[0].parse().unwrap()];
    let pool = penstock_client::Pool::open(&addresses, &Keys::default(), patience(), |_| ());
    let devices: Vec<_> = pool.devices().cloned().collect();
    assert_eq!(devices.len(), 1);
    assert!(penstock_client::identity::for_cuda(devices).is_empty());
}

#[test]
fn a_daemon_listens_answers_and_ends() {
    let home = Home::new("serve");
    let mut daemon = serve(&home, &[]);
    let socket = home.path.join("run/penstock/penstockd.sock");
    assert_eq!(daemon.addresses, [format!("unix:{}", socket.display())]);
    let output = home.penstock(&["status"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let second = home.penstock(&["serve"]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(stderr(&second).contains("another process serves"), "{}", stderr(&second));
    assert!(daemon.end("TERM").success());
    assert!(!socket.exists(), "the socket is left");
    assert_no_process(&home);
    // Without a list, runs of other tests are nodes, too.
    let output = home.penstock(&["status", "--nodes", &daemon.addresses[0]]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn the_status_says_what_each_client_costs() {
    let home = Home::new("costs");
    let daemon = serve(&home, &[]);
    let address = daemon.addresses[0].parse().unwrap();
    let pool = penstock_client::Pool::open(&[address], None, patience(), |_| {});
    assert_eq!(pool.nodes().len(), 1, "{:?}", pool.absent());
    let output = home.penstock(&["status", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let status = &json["nodes"][0]["status"];
    let session = &status["sessions"][0];
    assert_eq!(session["worker"], pool.nodes()[0].description().worker);
    // The worker has loaded its drivers, which takes time.
    assert!(session["core_seconds"]["busy"].as_f64().is_some_and(|it| it > 0.0), "{session}");
    let joules = &session["joules"];
    assert_ne!(
        joules["node"].is_null(),
        joules["unavailable"].is_null(),
        "a number or a reason: {session}"
    );
    assert_eq!(
        session["devices"].as_array().unwrap().len(),
        status["devices"].as_array().unwrap().len()
    );
    let table = stdout(&home.penstock(&["status"]).output().unwrap());
    assert!(table.contains("CORE-S") && table.contains("NODE J"), "{table}");
    drop(pool);
}

#[test]
fn tcp_needs_the_key_on_both_sides() {
    let home = Home::new("tcp");
    assert!(home.penstock(&["key", "--create"]).output().unwrap().status.success());
    let daemon = serve(&home, &["tcp:127.0.0.1:0"]);
    let ask =
        |home: &Home| home.penstock(&["status", "--nodes", &daemon.addresses[0]]).output().unwrap();
    let output = ask(&home);
    assert!(output.status.success(), "{}", stderr(&output));
    let stranger = Home::new("tcp-stranger");
    let output = ask(&stranger);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("key"), "{}", stderr(&output));
    assert!(stranger.penstock(&["key", "--create"]).output().unwrap().status.success());
    let output = ask(&stranger);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("another key"), "{}", stderr(&output));
}

#[test]
fn a_daemon_with_two_addresses_is_one_node() {
    let home = Home::new("twice");
    assert!(home.penstock(&["key", "--create"]).output().unwrap().status.success());
    let daemon = serve(&home, &["tcp:0.0.0.0:0", "local"]);
    let port = daemon.addresses[0].rsplit_once(':').unwrap().1;
    let tcp = [format!("tcp:127.0.0.1:{port}"), format!("tcp:localhost:{port}")];
    let local = daemon.addresses[1].clone();
    let count = |nodes: &[&str]| {
        let output = home
            .penstock(&["devices", "--no-local", "--json", "--nodes", &nodes.join(",")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        // On a busy host, the worker of the second call may not be ready at once.
        let told = stderr(&output);
        assert!(told.lines().all(|line| line.contains(" waits in line for it")), "{told}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["absent"], serde_json::json!([]));
        let devices = json["devices"].as_array().unwrap().clone();
        let used: std::collections::BTreeSet<_> =
            devices.iter().map(|device| device["address"].as_str().unwrap().to_owned()).collect();
        (devices.len(), used.into_iter().collect::<Vec<_>>())
    };
    let (alone, _) = count(&[&local]);
    if alone == 0 {
        skip(Need::OpenCl, "this host has no OpenCL device to count");
        return;
    }
    // The client uses the Unix socket wherever it stands in the list, otherwise the first address.
    assert_eq!(count(&[&tcp[0], &local, &tcp[1]]), (alone, vec![local.clone()]));
    assert_eq!(count(&[&tcp[1], &tcp[0]]), (alone, vec![tcp[1].clone()]));
    // A program that names the daemon twice gets one worker. The status, too, counts all of its
    // addresses as one node.
    let nodes: Vec<_> = [&tcp[0], &local].iter().map(|it| it.parse().unwrap()).collect();
    let key = penstock_link::Key::load(&home.path.join(".config/penstock/key")).unwrap();
    let pool = penstock_client::Pool::open(&nodes, Some(&key), patience(), |text| panic!("{text}"));
    assert_eq!(pool.nodes().len(), 1);
    assert_eq!(pool.nodes()[0].address(), &nodes[1]);
    wait_for("the end of the other worker", || {
        let list = format!("{},{local}", tcp[0]);
        let output = home.penstock(&["status", "--json", "--nodes", &list]).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["nodes"].as_array().unwrap().len(), 1, "{json}");
        json["nodes"][0]["status"]["sessions"].as_array().unwrap().len() == 1
    });
    // Two daemons on one host remain two nodes.
    let other = serve(&home, &["tcp:127.0.0.1:0"]);
    let (both, used) = count(&[&tcp[0], &other.addresses[0]]);
    assert_eq!((both, used.len()), (2 * alone, 2));
}

#[test]
fn devices_are_listed() {
    let home = Home::new("devices");
    let daemon = serve(&home, &[]);
    let output = home.penstock(&["devices", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let devices = json["devices"].as_array().unwrap();
    if devices.is_empty() {
        skip(Need::OpenCl, "this host has no OpenCL device to look at");
        return;
    }
    for device in devices {
        assert_eq!(device["address"], daemon.addresses[0].as_str());
        assert!(
            device["compute_units"].as_u64() > Some(0) && device["memory_bytes"].as_u64() > Some(0),
            "{device}"
        );
        assert!(device["version"].as_str().unwrap().starts_with("OpenCL "), "{device}");
    }
    let output = home.penstock(&["devices"]).output().unwrap();
    assert_eq!(stdout(&output).lines().count(), devices.len() + 1);
}

#[test]
fn a_device_of_pocl_has_as_many_units_as_its_daemon_may_use_processors() {
    let home = Home::new("processors");
    // The daemon takes over the processors of this thread, as it does from `taskset`.
    let mine = rustix::thread::sched_getaffinity(None).unwrap();
    let first = (0..).find(|processor| mine.is_set(*processor)).unwrap();
    let mut one = rustix::thread::CpuSet::new();
    one.set(first);
    rustix::thread::sched_setaffinity(None, &one).unwrap();
    let mut command = home.penstock(&["devices", "--json"]);
    // Whoever sets one of these decides alone.
    for name in ["POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT", "POCL_MAX_COMPUTE_UNITS"] {
        command.env_remove(name);
    }
    let output = command.env("POCL_DEVICES", "pthread").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let devices = json["devices"].as_array().unwrap().iter();
    let ours: Vec<_> =
        devices.filter(|it| it["platform"] == "Portable Computing Language").collect();
    if ours.is_empty() {
        skip(Need::OpenCl, "this host has no device of PoCL");
    }
    for device in ours {
        assert_eq!(device["compute_units"], 1, "{device}");
    }
}

#[test]
fn without_configuration_a_daemon_comes_and_goes_with_the_program() {
    let home = Home::new("embedded");
    let script = "test -S ${PENSTOCK_NODES#unix:} && echo $PENSTOCK_NODES; exit 3";
    let output = home.penstock(&["run", "--", "sh", "-c", script]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(
        stdout(&output).starts_with(&format!("unix:{}/run/penstock/run-", home.path.display())),
        "{}",
        stdout(&output)
    );
    assert_eq!(stderr(&output), "");
    assert_no_process(&home);
    assert_eq!(fs::read_dir(home.path.join("run/penstock")).unwrap().count(), 0, "files are left");
}

#[test]
fn devices_of_this_host_are_listed_without_configuration() {
    let home = Home::new("devices-alone");
    let output = home.penstock(&["devices"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).starts_with("NODE"), "{}", stdout(&output));
    let output = home.penstock(&["devices", "--no-local"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_no_process(&home);
    assert_eq!(fs::read_dir(home.path.join("run/penstock")).unwrap().count(), 0, "files are left");
}

/// Starts `penstock run` with a program that runs until it is ended. Returns when it runs.
fn program_that_runs(home: &Home) -> Child {
    let mut child = home
        .penstock(&["run", "--", "sh", "-c", "echo up; exec sleep 600"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    child
}

#[test]
fn nothing_is_left_of_a_program_that_is_killed() {
    let home = Home::new("killed");
    let mut child = program_that_runs(&home);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_no_process(&home);
    assert_eq!(fs::read_dir(home.path.join("run/penstock")).unwrap().count(), 0, "files are left");
}

#[test]
fn the_own_daemon_is_used_if_it_runs() {
    let home = Home::new("own");
    let daemon = serve(&home, &[]);
    let output =
        home.penstock(&["run", "--", "sh", "-c", "echo $PENSTOCK_NODES"]).output().unwrap();
    assert_eq!(stdout(&output).trim_end(), daemon.addresses[0], "{}", stderr(&output));
}

#[test]
fn an_allocation_without_daemons_still_has_the_devices_of_this_host() {
    let home = Home::new("slurm");
    let config = home.path.join(".config/penstock");
    fs::create_dir_all(&config).unwrap();
    // No process listens on port 1.
    fs::write(config.join("pool.toml"), "port = 1\n").unwrap();
    assert!(home.penstock(&["key", "--create"]).output().unwrap().status.success());
    let run = || {
        let mut command = home.penstock(&["run", "--", "sh", "-c", "echo $PENSTOCK_NODES"]);
        command.env("SLURM_JOB_NODELIST", "127.0.0.[1-2]");
        command
    };
    let output = run().output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("/run-"), "{}", stdout(&output));
    assert_eq!(stderr(&output).lines().count(), 2, "{}", stderr(&output));
    // A list that the user gives is used as it is.
    let output = run().env("PENSTOCK_NODES", "tcp:127.0.0.1:1").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("no node of the pool answers"), "{}", stderr(&output));
}

#[test]
fn a_socket_that_nobody_serves_is_no_obstacle() {
    let home = Home::new("stale");
    let mut daemon = serve(&home, &[]);
    daemon.end("KILL");
    let output =
        home.penstock(&["run", "--", "sh", "-c", "echo $PENSTOCK_NODES"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("/run-"), "{}", stdout(&output));
    assert_eq!(stderr(&output), "", "nobody has named that daemon");
    let _again = serve(&home, &[]);
}

#[test]
fn the_embedded_daemon_ends_if_its_guard_is_killed() {
    let home = Home::new("guard");
    let mut child = program_that_runs(&home);
    let guard = guard_of(&home).expect("there is no guard");
    Command::new("kill").args(["-s", "KILL", &guard]).status().unwrap();
    // The program itself is not affected.
    wait_for("the end of the daemon", || processes_of(&home.path) <= 1);
    child.kill().unwrap();
    child.wait().unwrap();
}

fn guard_of(home: &Home) -> Option<String> {
    fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let line =
            String::from_utf8_lossy(&fs::read(entry.path().join("cmdline")).ok()?).into_owned();
        let ours = line.contains("\0guard\0") && line.contains(&*home.path.to_string_lossy());
        ours.then(|| entry.file_name().to_string_lossy().into_owned())
    })
}
