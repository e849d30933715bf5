//! The host paths on this host, with real processes, drivers and MPI. What is missing is named and
//! skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

use penstock_bench::Error;
use penstock_bench::comm::Results;
use penstock_bench::group::{Group, Launcher, Start};
use penstock_bench::host::rank::{self, Said};
use penstock_bench::plan::{self, Kind, Plan};
use penstock_bench::point::Point;
use penstock_trial::{Need, is_compiled, skip};

type Test = fn(&Path);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|word| word == "--as-rank") {
        let file = PathBuf::from(arguments.get(at + 1).expect("a plan"));
        let number = arguments.get(at + 2).map(|text| text.parse().expect("a rank"));
        std::process::exit(rank::run(&file, number).is_err().into());
    }
    if arguments.iter().any(|word| word == "--list") {
        return;
    }
    let directory = std::env::temp_dir().join(format!("penstock-bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let tests: [(&str, Test); 3] = [
        ("over_tcp", over_tcp),
        ("over_mpi", over_mpi),
        ("a_rank_that_ends_is_told_of", a_rank_that_ends_is_told_of),
    ];
    for (name, test) in tests {
        let directory = directory.clone();
        // A skip names the thread of its test.
        let thread = std::thread::Builder::new().name(name.to_owned());
        let ended = thread.spawn(move || test(&directory)).expect("a thread").join();
        println!("test {name} ... {}", if ended.is_ok() { "ok" } else { "FAILED" });
        assert!(ended.is_ok(), "{name} failed");
    }
    std::fs::remove_dir_all(&directory).expect("the directory is ours");
    println!("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured");
}

/// A word, and a message that is sent in pieces.
const SIZES: [u64; 2] = [8, 1 << 20];

fn plan(paths: &[plan::Path]) -> Plan {
    Plan {
        paths: paths.to_vec(),
        sizes: SIZES.to_vec(),
        // The data is compared in each sample, so more time would show nothing else.
        seconds: 0.01,
        ..Plan::usual(true)
    }
}

fn start<'a>(program: &'a Path, directory: &'a Path) -> Start<'a> {
    Start { program, arguments: &["--as-rank"], directory, cores: 1 }
}

fn points(mut group: Group) -> Result<Vec<Point>, Error> {
    let mut results = Results::default();
    loop {
        match group.hear()? {
            Said::Point(point) => results.keep(*point),
            Said::End => return Ok(results.points),
            _ => {}
        }
    }
}

/// Checks that all figures exist, and that the content of their messages was compared.
fn check(points: &[Point], paths: &[plan::Path], name: &str) {
    for &path in paths {
        for kind in Kind::ALL.into_iter().filter(|kind| path.has(*kind)) {
            let found: Vec<_> =
                points.iter().filter(|it| (it.path, it.kind) == (path, kind)).collect();
            assert_eq!(
                found.len(),
                if kind == Kind::Barrier { 1 } else { SIZES.len() },
                "{name}: {path} {kind:?}"
            );
            for point in found {
                let is_named = path != plan::Path::HostTcp || point.way.is_some();
                assert!(is_named, "{name}: whether who waits sleeps or spins: {point:?}");
                assert!(point.us > 0.0 && point.samples >= 5, "{name}: {point:?}");
                assert!(point.core_us.is_some_and(|it| it > 0.0), "{name}: {point:?}");
                assert!(kind == Kind::Barrier || point.checked > point.count, "{name}: {point:?}");
                println!(
                    "  {name}: {path} {} {} B: {:.2} us, {:.0} MB/s, {:?}, {} checked",
                    kind.name(),
                    point.bytes,
                    point.us,
                    point.mb_s.unwrap_or_default(),
                    point.way,
                    point.checked
                );
            }
        }
    }
}

fn over_tcp(directory: &Path) {
    let program = std::env::current_exe().expect("this program");
    let paths = [plan::Path::HostTcp, plan::Path::HostTcpPipelined];
    let points =
        points(Group::tcp(&start(&program, directory), &plan(&paths), 2).expect("started"));
    check(&points.expect("all is measured"), &paths, "TCP");
    println!("test host_paths_over_tcp_bring_every_byte ... ok");
}

fn over_mpi(directory: &Path) {
    let program = std::env::current_exe().expect("this program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../faces/water/shim/wtr_mpi.c");
    let shim = directory.join("libwtr_mpi_openmpi.so");
    let mut compiler = Command::new("mpicc.openmpi");
    compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&shim).arg(source);
    if !is_compiled(&mut compiler, Need::Mpi) {
        return;
    }
    let launcher = match Launcher::find(&[directory.to_path_buf()]) {
        Ok(launcher) => launcher,
        Err(why) => return skip(Need::Mpi, why),
    };
    let paths = [plan::Path::HostMpi, plan::Path::HostMpiPipelined];
    let group = Group::mpi(&start(&program, directory), &launcher, &plan(&paths), 2, true)
        .expect("started");
    check(&points(group).expect("all is measured"), &paths, "MPI");
    println!("test host_paths_over_mpi_bring_every_byte ... ok");
}

/// One of three ranks is a program that ends at once. The others must not wait for ever, and the
/// reason must be reported.
fn a_rank_that_ends_is_told_of(directory: &Path) {
    let program = PathBuf::from("/bin/false");
    let mut group =
        Group::tcp(&start(&program, directory), &plan(&[plan::Path::HostTcp]), 3).expect("started");
    let error = group.hear().expect_err("nobody is there");
    assert!(matches!(error, Error::Ended { .. }), "{error}");
    println!("test a_rank_that_ends_is_told_of ... ok");
}
