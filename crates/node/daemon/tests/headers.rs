//! Files that programs include, sent by clients that keep to the protocol and by others.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Client, Devices};
use penstock_cl_sys::{CL_PROGRAM_BUILD_LOG, CL_PROGRAM_BUILD_OPTIONS};
use penstock_wire::calls::to_worker;
use penstock_wire::describe::{BuildOrder, BuildReport, find};
use penstock_wire::headers::{HeaderFile, HeaderLink, Headers, OptionPart, SearchFolder};
use penstock_wire::id::kind;
use penstock_wire::{Id, Status, frame};

const DEVICES: Devices = Devices::Real;

const SOURCE: &[u8] = b"#include \"a.h\"\nkernel void k(global int *w) { *w = VALUE; }";

/// A client of a worker that has a folder for included files, and what lies beside it.
struct Case {
    client: Client,
    outside: PathBuf,
    base: PathBuf,
}

impl Case {
    fn new(name: &str) -> Self {
        let outside = std::env::temp_dir().join(format!("penstock-{name}-{}", std::process::id()));
        _ = fs::remove_dir_all(&outside);
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("victim"), "whole").unwrap();
        let (client, base) = (Client::rings(), outside.join("headers"));
        client.shared.as_ref().unwrap().keep_headers_in(base.clone());
        Self { client, outside, base }
    }

    fn source(&mut self) -> Id<kind::Program> {
        let (program, context) = (self.client.id(), self.client.context());
        self.client.send(to_worker::CreateProgramWithSource { program, context }, &[], SOURCE);
        program
    }

    fn build(&mut self, headers: &Headers) -> (Status, BuildReport) {
        let program = self.source();
        self.build_again(program, Some(headers))
    }

    fn build_again(
        &mut self,
        program: Id<kind::Program>,
        headers: Option<&Headers>,
    ) -> (Status, BuildReport) {
        if let Some(headers) = headers {
            let call = to_worker::ProgramHeaders { program };
            self.client.send(call, &[], &frame::encode(headers));
        }
        let options = Some("-I /inc".into());
        let order = BuildOrder { devices: vec![0], options, ..BuildOrder::default() };
        let call = to_worker::BuildProgram { request: Id::NONE, program };
        let (status, report) = self.client.request(call, &frame::encode(&order));
        (status, frame::decode("a report", &report).unwrap())
    }

    /// Checks that nothing was made or changed except below the folder for included files, and that
    /// nothing stays there.
    fn check(&self, what: &str) {
        let beside: Vec<PathBuf> =
            fs::read_dir(&self.outside).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(beside.iter().all(|path| *path == self.base || path.ends_with("victim")), "{what}");
        assert_eq!(fs::read_to_string(self.outside.join("victim")).unwrap(), "whole", "{what}");
        let left = fs::read_dir(&self.base).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{what} leaves something");
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.outside);
    }
}

fn file(path: &str, text: &str) -> HeaderFile {
    HeaderFile { path: path.into(), text: text.into() }
}

fn link(path: &str, target: &str) -> HeaderLink {
    HeaderLink { path: path.into(), target: target.into() }
}

fn headers(files: Vec<HeaderFile>, links: Vec<HeaderLink>) -> Headers {
    let search = vec![SearchFolder { path: Some(b"/inc".to_vec()), named: b"/inc".to_vec() }];
    let options = vec![OptionPart::Text("-I".into()), OptionPart::Folder(0)];
    Headers { files, links, search, options, ..Headers::default() }
}

fn log(report: &BuildReport) -> String {
    let log = find(&report.devices[0].1, CL_PROGRAM_BUILD_LOG).unwrap();
    String::from_utf8_lossy(log).into_owned()
}

#[test]
fn files_are_there_for_one_build_and_the_report_has_the_clients_paths() {
    let mut case = Case::new("headers-one");
    let wanted = headers(
        vec![file("/real/a.h", "#include \"../b/c.h\"\n"), file("/b/c.h", "#define VALUE 1\n")],
        vec![link("/inc", "/real")],
    );
    let wanted = Headers { search: headers(vec![], vec![]).search, ..wanted };
    let program = case.source();
    let (status, report) = case.build_again(program, Some(&wanted));
    assert_eq!(status, Status::OK, "{}", log(&report));
    let options = find(&report.devices[0].1, CL_PROGRAM_BUILD_OPTIONS).unwrap();
    assert_eq!(options, b"-I /inc\0");
    case.check("a build");
    // They were for that build only.
    let (status, report) = case.build_again(program, None);
    assert_eq!(status, Status::BUILD_PROGRAM_FAILURE);
    assert!(log(&report).contains("'a.h' file not found"), "{}", log(&report));
    // That includes a build that did not begin.
    let call = to_worker::ProgramHeaders { program };
    case.client.send(call, &[], &frame::encode(&wanted));
    let order = BuildOrder { devices: vec![99], ..BuildOrder::default() };
    let call = to_worker::BuildProgram { request: Id::NONE, program };
    let (status, _) = case.client.request(call, &frame::encode(&order));
    assert_eq!(status, Status::INVALID_DEVICE);
    let (status, report) = case.build_again(program, None);
    assert_eq!(status, Status::BUILD_PROGRAM_FAILURE);
    assert!(log(&report).contains("'a.h' file not found"), "{}", log(&report));
    let wrong = headers(vec![file("/inc/a.h", "int 1wrong;\n")], vec![]);
    let (status, report) = case.build(&wrong);
    assert_eq!(status, Status::BUILD_PROGRAM_FAILURE);
    assert!(log(&report).contains("/inc/a.h:1:"), "{}", log(&report));
    assert!(!log(&report).contains(case.base.to_str().unwrap()), "{}", log(&report));
    case.check("a build that failed");
}

#[test]
fn no_path_leads_out_of_the_folder() {
    let mut case = Case::new("headers-out");
    let outside = case.outside.join("victim");
    let outside = outside.to_str().unwrap();
    for path in ["", "x", "../x", "../../victim", "/", "/..", "/../../../victim", "/a/../../x"]
        .into_iter()
        .chain(["/./x", "//x", "/a//x", "/x/", "/a\0b", "/a/..", "/\u{0}"])
    {
        for hostile in
            [headers(vec![file(path, "x")], vec![]), headers(vec![], vec![link(path, "/a")])]
        {
            let (status, report) = case.build(&hostile);
            assert_eq!(status, Status::BUILD_PROGRAM_FAILURE, "{path:?}");
            assert!(log(&report).contains("in a way that is none"), "{path:?}: {}", log(&report));
            case.check(path);
        }
    }
    for target in ["", "victim", "../victim", "/../../../victim", "/a/..", "//"] {
        let (status, _) = case.build(&headers(vec![], vec![link("/l", target)]));
        assert_eq!(status, Status::BUILD_PROGRAM_FAILURE, "{target:?}");
        case.check(target);
    }
    // A target is a path below the folder, also if it is one of the node's files.
    let (status, report) = case.build(&headers(vec![], vec![link("/inc/a.h", outside)]));
    assert_eq!(status, Status::BUILD_PROGRAM_FAILURE);
    assert!(log(&report).contains("'a.h' file not found"), "{}", log(&report));
    case.check("a link to a file of the node");
    for search in ["/../..", "..", "x"] {
        let mut hostile = headers(vec![], vec![]);
        hostile.search[0].path = Some(search.into());
        assert_eq!(case.build(&hostile).0, Status::BUILD_PROGRAM_FAILURE, "{search}");
        case.check(search);
        hostile = headers(vec![], vec![]);
        hostile.folders = vec![search.into()];
        assert_eq!(case.build(&hostile).0, Status::BUILD_PROGRAM_FAILURE, "{search}");
        case.check(search);
    }
}

#[test]
fn no_file_is_made_through_a_link() {
    let mut case = Case::new("headers-link");
    let target = case.outside.to_str().unwrap().to_owned();
    for (files, links) in [
        (vec![file("/l/victim", "broken")], vec![link("/l", &target)]),
        (vec![file("/l", "broken")], vec![link("/l", "/victim")]),
        (vec![file("/l", "one"), file("/l", "two")], vec![]),
        (vec![file("/l", "one"), file("/l/x", "two")], vec![]),
        (vec![], vec![link("/l", "/a"), link("/l", "/b")]),
        (vec![], vec![link("/l", "/a"), link("/l/x", "/b")]),
    ] {
        let (status, report) = case.build(&headers(files.clone(), links.clone()));
        assert_eq!(status, Status::BUILD_PROGRAM_FAILURE, "{files:?} {links:?}");
        assert!(log(&report).contains("do not fit"), "{}", log(&report));
        case.check("a link");
    }
}

#[test]
fn what_a_client_may_make_is_limited() {
    let mut case = Case::new("headers-many");
    let deep = "/d".repeat(100);
    let many = (0..200).map(|n| file(&format!("/{n}{deep}/x"), "")).collect();
    let (status, report) = case.build(&headers(many, vec![]));
    assert_eq!(status, Status::BUILD_PROGRAM_FAILURE);
    assert!(log(&report).contains("HEADER_ENTRIES_MAX"), "{}", log(&report));
    case.check("many folders");
    let large = "x".repeat(31 << 20);
    let programs: Vec<_> = (0..17).map(|_| case.source()).collect();
    let wanted =
        headers(vec![file("/inc/unused.h", &large), file("/inc/a.h", "#define VALUE 1\n")], vec![]);
    for program in &programs {
        let call = to_worker::ProgramHeaders { program: *program };
        case.client.send(call, &[], &frame::encode(&wanted));
    }
    let (status, report) = case.build_again(programs[16], None);
    assert_eq!(status, Status::BUILD_PROGRAM_FAILURE);
    assert!(log(&report).contains("HEADERS_WAITING_BYTES_MAX"), "{}", log(&report));
    // Those of the other programs stay, and give way when they are built or released.
    assert_eq!(case.build_again(programs[0], None).0, Status::OK);
    case.client.send(to_worker::ReleaseProgram { program: programs[1] }, &[], &[]);
    assert_eq!(case.build_again(programs[16], Some(&wanted)).0, Status::OK);
    case.check("large files");
}

#[test]
fn a_worker_without_a_folder_says_so() {
    let mut client = Client::rings();
    let (program, context) = (client.id(), client.context());
    client.send(to_worker::CreateProgramWithSource { program, context }, &[], SOURCE);
    let call = to_worker::ProgramHeaders { program };
    client.send(call, &[], &frame::encode(&headers(vec![], vec![])));
    let order = BuildOrder { devices: vec![0], ..BuildOrder::default() };
    let call = to_worker::BuildProgram { request: Id::NONE, program };
    let (status, report) = client.request(call, &frame::encode(&order));
    assert_eq!(status, Status::BUILD_PROGRAM_FAILURE);
    let report: BuildReport = frame::decode("a report", &report).unwrap();
    assert!(log(&report).contains("PENSTOCK_CACHE"), "{}", log(&report));
    assert!(!Path::new("headers").exists());
}
