use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use penstock_discover::Found;

use super::*;

/// A home directory that is removed when the test ends.
struct Home {
    path: PathBuf,
    variables: HashMap<&'static str, OsString>,
}

impl Home {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("penstock-config-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join(".config/penstock")).unwrap();
        fs::create_dir_all(path.join("run/penstock")).unwrap();
        fs::set_permissions(path.join("run/penstock"), fs::Permissions::from_mode(0o700)).unwrap();
        let variables = HashMap::from([
            ("HOME", path.clone().into_os_string()),
            ("XDG_RUNTIME_DIR", path.join("run").into()),
        ]);
        Self { path, variables }
    }

    fn set(mut self, name: &'static str, value: &str) -> Self {
        self.variables.insert(name, value.into());
        self
    }

    fn file(self, text: &str) -> Self {
        fs::write(self.path.join(".config/penstock/pool.toml"), text).unwrap();
        self
    }

    fn socket(self) -> Self {
        fs::write(self.path.join("run/penstock/penstockd.sock"), "").unwrap();
        self
    }

    fn surroundings(&self) -> Surroundings<'_> {
        let uid = rustix::process::getuid().as_raw();
        Surroundings::new("gpu02.cluster", uid, |name| self.variables.get(name).cloned())
    }

    fn load(&self) -> Result<Config, ConfigError> {
        Config::load_in(&self.surroundings())
    }

    fn addresses(&self) -> Vec<String> {
        self.load().unwrap().nodes.iter().map(ToString::to_string).collect()
    }

    fn error(&self) -> String {
        self.load().unwrap_err().to_string()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn hosts(list: &str) -> Vec<String> {
    slurm::expand(list).unwrap()
}

#[test]
fn nothing_configured_is_an_empty_pool() {
    let home = Home::new("nothing");
    let config = home.load().unwrap();
    assert_eq!(config.nodes, []);
    assert_eq!(config.source, Source::Nothing);
    assert_eq!(config.platforms, Platforms::Pool);
    assert_eq!(config.key, None);
    assert_eq!(config.timeout, Duration::from_millis(TIMEOUT_MS_DEFAULT));
}

#[test]
fn sources_are_asked_in_order() {
    let home = Home::new("order").socket();
    assert_eq!(home.load().unwrap().source, Source::OwnDaemon);
    let home = home.set(SLURM_VARIABLE, "gpu[01-03]");
    let own = format!("unix:{}/run/penstock/penstockd.sock", home.path.display());
    // gpu02 is this host, and its daemon is reached without TCP.
    assert_eq!(home.addresses(), ["tcp:gpu01:7367", &own, "tcp:gpu03:7367"]);
    let is_named = |home: &Home| home.load().unwrap().nodes.iter().any(|node| node.is_named);
    assert!(!is_named(&home), "the user has named no node");
    let home = home.file("nodes = ['tcp:a:1', 'local']\n");
    assert_eq!(home.addresses(), ["tcp:a:1", &own]);
    assert!(is_named(&home));
    let home = home.set(NODES_VARIABLE, "unix:/b, tcp:[::1]:9,tcp:c,vsock:2");
    assert_eq!(home.addresses(), ["unix:/b", "tcp:[::1]:9", "tcp:c:7367", "vsock:2:7367"]);
    assert_eq!(home.load().unwrap().source, Source::Variable);
}

#[test]
fn an_empty_variable_is_an_unset_one() {
    let home = Home::new("empty")
        .socket()
        .set(NODES_VARIABLE, " ")
        .set(KEY_VARIABLE, "")
        .set(PLATFORMS_VARIABLE, "");
    assert_eq!(home.load().unwrap().source, Source::OwnDaemon);
}

#[test]
fn a_pool_can_be_asked_to_have_no_nodes() {
    let home = Home::new("none").socket().set(NODES_VARIABLE, "none");
    assert_eq!(
        (home.load().unwrap().nodes, home.load().unwrap().source),
        (vec![], Source::Variable)
    );
}

#[test]
fn settings_of_the_file_hold_for_nodes_from_elsewhere() {
    let home = Home::new("settings")
        .set(SLURM_VARIABLE, "a")
        .file("# a comment\nkey = 'k'\nplatforms = 'node'\ntimeout_ms = 10\nport = 7\nheap_path = 'proxy'\n\
               encryption = 'always'\n");
    let config = home.load().unwrap();
    assert_eq!(home.addresses(), ["tcp:a:7"]);
    assert_eq!(config.key, Some(home.path.join(".config/penstock/k")));
    assert_eq!((config.platforms, config.timeout), (Platforms::Node, Duration::from_millis(10)));
    assert_eq!(config.heap_path, HeapPath::Proxy);
    assert_eq!(config.encryption, Rule::Always);
    let home = home
        .set(PLATFORMS_VARIABLE, "pool")
        .set(KEY_VARIABLE, "/other")
        .set(TIMEOUT_VARIABLE, "20");
    let home = home.set(HEAP_PATH_VARIABLE, "auto").set(ENCRYPTION_VARIABLE, "remote");
    let config = home.load().unwrap();
    assert_eq!(config.key, Some(PathBuf::from("/other")));
    assert_eq!((config.platforms, config.timeout), (Platforms::Pool, Duration::from_millis(20)));
    assert_eq!((config.heap_path, config.encryption), (HeapPath::Auto, Rule::Remote));
}

#[test]
fn the_default_key_is_used_if_it_is_there() {
    let home = Home::new("key");
    assert_eq!(home.load().unwrap().key, None);
    fs::write(home.path.join(".config/penstock/key"), "").unwrap();
    assert_eq!(home.load().unwrap().key, Some(home.path.join(".config/penstock/key")));
}

#[test]
fn a_node_named_twice_is_one_node() {
    assert_eq!(
        Home::new("twice").set(NODES_VARIABLE, "tcp:a:1,tcp:b:1,tcp:a:1").addresses(),
        ["tcp:a:1", "tcp:b:1"]
    );
}

#[test]
fn a_home_is_put_for_a_tilde_and_relative_paths_made_absolute() {
    let home = Home::new("tilde").file("nodes = ['unix:~/s', 'unix:s']\n");
    let path = home.path.display();
    assert_eq!(
        home.addresses(),
        [format!("unix:{path}/s"), format!("unix:{path}/.config/penstock/s")]
    );
    let here = std::env::current_dir().unwrap();
    assert_eq!(
        home.set(NODES_VARIABLE, "unix:s").addresses(),
        [format!("unix:{}/s", here.display())]
    );
}

#[test]
fn devices_are_chosen_by_a_query() {
    let devices = |home: Home| home.load().unwrap().devices.map(|query| query.to_string());
    assert_eq!(devices(Home::new("query")), None);
    assert_eq!(devices(Home::new("query").set(DEVICES_VARIABLE, " ")), None);
    let home = Home::new("query").set(DEVICES_VARIABLE, "select top 2 where type = gpu;");
    assert_eq!(devices(home).as_deref(), Some("SELECT TOP 2 WHERE type = gpu"));
}

#[test]
fn the_folder_of_the_keys_is_an_absolute_path() {
    let folder = |value| {
        let surroundings = Surroundings::new("h", 1, move |name| match name {
            "PENSTOCK_KEYS" => Some(OsString::from(value)),
            "HOME" => Some("/home/u".into()),
            _ => None,
        });
        Config::load_for(Wanted::Nothing, &surroundings).map(|config| config.keys_folder)
    };
    assert_eq!(folder("/k").unwrap(), Some("/k".into()));
    assert_eq!(folder("").unwrap(), Some("/home/u/.config/penstock".into()));
    let error = folder("keys").unwrap_err().to_string();
    assert!(error.contains("variable PENSTOCK_KEYS: `keys` is no absolute path"), "{error}");
}

#[test]
fn errors_say_where_and_what_to_do() {
    let home = Home::new("errors").set(NODES_VARIABLE, "tcp:a:1,gpu01");
    let error = home.error();
    assert!(
        error.starts_with("variable PENSTOCK_NODES: `gpu01` is not the address of a node"),
        "{error}"
    );
    let forms = "write unix:PATH, tcp:HOST:PORT, vsock:CID:PORT, ssh:HOST, local or discover";
    assert!(error.contains(forms), "{error}");

    let home = Home::new("errors").file("nodes = [\n  'tcp:a:1',\n  'tcp:a:x',\n]\n");
    let error = home.error();
    assert!(error.contains("pool.toml:3: `tcp:a:x` is not the address"), "{error}");

    let error = home.file("port = 1\nnode = ['tcp:a:1']\n").error();
    assert!(error.contains("pool.toml:2: unknown field `node`"), "{error}");
    assert!(!error.contains('\n'), "{error}");

    let error = Home::new("errors").file("nodes = [\n").error();
    assert!(error.contains("pool.toml:"), "{error}");

    let error = Home::new("errors").file("\nplatforms = 'pol'\n").error();
    assert!(error.contains("pool.toml:2: `pol` is not a way"), "{error}");

    let error = Home::new("errors").set(TIMEOUT_VARIABLE, "3s").error();
    assert!(error.starts_with("variable PENSTOCK_TIMEOUT_MS: `3s` is not a time"), "{error}");
    let error = Home::new("errors").set(TIMEOUT_VARIABLE, "0").error();
    assert!(error.contains("milliseconds from 1 to 600000"), "{error}");

    let error = Home::new("errors").set(PLACEMENT_VARIABLE, "random").error();
    assert!(
        error.contains("`random` is not an order of devices; write `in-order` or `round-robin`"),
        "{error}"
    );

    let error = Home::new("errors").set(HEAP_PATH_VARIABLE, "fast").error();
    assert!(
        error.contains("PENSTOCK_HEAP_PATH: `fast` is not a heap path; write `auto` or `proxy`"),
        "{error}"
    );
    // A typing error must not switch encryption off.
    let error = Home::new("errors").file("encryption = 'on'\n").error();
    assert!(error.contains("pool.toml:1: `on`") && error.contains("`remote`"), "{error}");
    let error = Home::new("errors").set(ENCRYPTION_VARIABLE, "yes").error();
    assert!(error.contains("variable PENSTOCK_ENCRYPTION: `yes`"), "{error}");
    let error = Home::new("errors").file("heap_path = 'x'\n").error();
    assert!(error.contains("pool.toml:1: `x` is not a heap path"), "{error}");

    let error = Home::new("errors").set(PLATFORMS_VARIABLE, "both").error();
    assert!(error.starts_with("variable PENSTOCK_PLATFORMS: `both`"), "{error}");

    let error = Home::new("errors").set(DEVICES_VARIABLE, "SELECT\nWHERE typ = gpu").error();
    assert_eq!(
        error,
        "variable PENSTOCK_DEVICES: there is no attribute `typ`, at line 2, character 7; did you \
         mean `type`?"
    );

    let error = Home::new("errors").set(SLURM_VARIABLE, "gpu[1-").error();
    assert_eq!(
        error,
        "variable SLURM_JOB_NODELIST: a number is missing in brackets, at byte 6; \
         set PENSTOCK_NODES to name the nodes yourself"
    );

    let mut home = Home::new("errors");
    home.variables.insert(NODES_VARIABLE, OsString::from_vec(vec![0xff]));
    assert_eq!(home.error(), "variable PENSTOCK_NODES is not UTF-8 text; set it anew");
}

#[test]
fn a_file_that_is_a_directory_or_too_long_is_an_error() {
    let home = Home::new("long").file(&"#".repeat(usize::try_from(file::BYTES_MAX).unwrap() + 1));
    assert!(home.error().contains("longer than 512 KiB"));
    let path = home.path.join(".config/penstock/pool.toml");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(home.error().contains("pool.toml"));
}

#[test]
fn a_socket_in_a_directory_of_others_is_not_trusted() {
    let home = Home::new("foreign").socket();
    let directory = home.path.join("run/penstock");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(home.load().unwrap().source, Source::Nothing);
    let stranger = Surroundings::new("h", 1, |_| None);
    let shared = Path::new("/tmp");
    assert!(!stranger.is_private(shared));
    assert!(!stranger.is_private(Path::new("/nowhere")));
}

#[test]
fn without_a_runtime_directory_there_is_one_per_user() {
    let surroundings = Surroundings::new("h", 4_000_000_001, |_| None);
    assert_eq!(surroundings.own_socket(), Path::new("/tmp/penstock-4000000001/penstockd.sock"));
    assert_eq!(surroundings.pool_file(), None);
    // The XDG rules say that relative directories are to be ignored.
    let relative = Surroundings::new("h", 4_000_000_001, |_| Some("relative".into()));
    assert_eq!(relative.own_socket(), surroundings.own_socket());
}

#[test]
fn hosts_are_compared_without_domain() {
    let surroundings = Surroundings::new("gpu02.cluster", 1, |_| None);
    assert!(surroundings.is_own_host("gpu02") && surroundings.is_own_host("GPU02.other"));
    assert!(!surroundings.is_own_host("gpu") && !surroundings.is_own_host(""));
}

#[test]
fn slurm_lists_expand() {
    assert_eq!(hosts("login1"), ["login1"]);
    assert_eq!(hosts("gpu[01-03,07],login1"), ["gpu01", "gpu02", "gpu03", "gpu07", "login1"]);
    assert_eq!(hosts("n[9-11]"), ["n9", "n10", "n11"]);
    assert_eq!(hosts("n[098-101]"), ["n098", "n099", "n100", "n101"]);
    assert_eq!(hosts("r[1-2]n[01-02]-ib"), ["r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib"]);
    assert_eq!(hosts(" a.b-c_d[5] "), ["a.b-c_d5"]);
    assert_eq!(hosts("n[1-1024]").len(), 1024);
    assert_eq!(hosts("n[18446744073709551-18446744073709552]").len(), 2);
}

#[test]
fn hostile_slurm_lists_are_refused() {
    for list in [
        "",
        ",",
        "a,",
        ",a",
        "a,,b",
        "n[",
        "n]",
        "n[]",
        "n[1",
        "n[1-",
        "n[1-]",
        "n[-1]",
        "n[1,]",
        "n[2-1]",
        "n[1-2-3]",
        "n[1]]",
        "n[[1]]",
        "n[a]",
        "a b",
        "a\nb",
        "a;rm",
        "ä",
        "n[1-18446744073709551615]",
        "n[99999999999999999999]",
        "n[1-1025]",
        "n[1-1024],m",
        "n[1-100][1-100]",
        "n[1-2][1-2][1-2][1-2][1-2][1-2][1-2][1-2][1-2]",
        "n[0-9999999999999999999]",
        "[1-1024][1-1024][1-1024]",
    ] {
        assert!(slurm::expand(list).is_err(), "{list:?} was taken");
    }
    assert!(slurm::expand(&"a".repeat(254)).is_err());
    assert!(slurm::expand(&"[1]".repeat(100_000)).is_err());
    assert!(slurm::expand(&"1,".repeat(100_000)).is_err());
    assert!(slurm::expand(&format!("n[{}]", "1,".repeat(100_000))).is_err());
}

proptest::proptest! {
    #[test]
    fn no_slurm_list_is_too_much(list in "[a-c0-9,\\[\\]-]{0,40}") {
        if let Ok(hosts) = slurm::expand(&list) {
            proptest::prop_assert!(hosts.len() <= NODES_MAX && !hosts.iter().any(String::is_empty));
        }
    }

    #[test]
    fn no_file_breaks_the_parser(text in "[a-z_0-9=\\[\\]'\", \n#:.-]{0,80}") {
        let _ = file::parse(&text, Path::new("/f"), &Surroundings::new("h", 1, |_| None));
    }
}

/// A daemon that announces itself.
fn announced(name: &str, address: &str) -> Found {
    let address = address.parse().unwrap();
    Found { name: name.to_owned(), address, protocol: None, fingerprint: None }
}

/// Loads the configuration where the network has these daemons.
fn load_among(home: &Home, found: &[Found]) -> Result<Config, ConfigError> {
    Config::load_in(&home.surroundings().with_search(|| Ok(found.to_vec())))
}

#[test]
fn daemons_of_the_network_are_nodes_if_a_list_asks_for_them() {
    let found = [announced("gpu01", "10.0.0.1:7367"), announced("gpu03", "[fd00::3]:7400")];
    let texts = |home: &Home| -> Vec<(String, String)> {
        let nodes = load_among(home, &found).unwrap().nodes;
        nodes.iter().map(|node| (node.name.clone(), node.to_string())).collect()
    };
    let text = |name: &str, address: &str| (name.to_owned(), address.to_owned());
    let expected = [text("gpu01", "tcp:10.0.0.1:7367"), text("gpu03", "tcp:[fd00::3]:7400")];
    assert_eq!(texts(&Home::new("discover").set("PENSTOCK_NODES", "discover")), expected);
    assert_eq!(texts(&Home::new("discover-file").file("nodes = [\"discover\"]")), expected);
    // A node that is named as well is there once, under the name that the user has written.
    let list = "tcp:10.0.0.1,discover";
    let named = [text("tcp:10.0.0.1", "tcp:10.0.0.1:7367"), text("gpu03", "tcp:[fd00::3]:7400")];
    let both = Home::new("discover-both").set("PENSTOCK_NODES", list);
    assert_eq!(texts(&both), named);
    // Whoever announces a daemon must not be able to keep programs from starting.
    let is_named = |node: &NodeAddress| node.is_named;
    let config = load_among(&both, &found).unwrap();
    assert_eq!(config.nodes.iter().map(is_named).collect::<Vec<_>>()[..2], [true, false]);
}

#[test]
fn the_own_daemon_is_not_reached_over_the_network() {
    let home = Home::new("discover-own").set("PENSTOCK_NODES", "discover").socket();
    let config = load_among(&home, &[announced("gpu02", "10.0.0.2:7367")]).unwrap();
    assert!(config.nodes[0].to_string().starts_with("unix:"), "{}", config.nodes[0]);
}

#[test]
fn a_search_without_result_is_an_error_unless_other_nodes_are_named() {
    let home = Home::new("discover-none").set("PENSTOCK_NODES", "discover");
    let error = load_among(&home, &[]).unwrap_err().to_string();
    assert!(error.contains("no daemon announces itself"), "{error}");
    let home = Home::new("discover-none-file").file("nodes = [\"discover\"]");
    let error = load_among(&home, &[]).unwrap_err().to_string();
    assert!(error.contains("pool.toml:1: "), "{error}");
    let home = Home::new("discover-some").set("PENSTOCK_NODES", "discover,tcp:gpu01");
    assert_eq!(load_among(&home, &[]).unwrap().nodes.len(), 1);
    let failed = home.surroundings().with_search(|| Err("no multicast".to_owned()));
    let error = Config::load_in(&failed).unwrap_err().to_string();
    assert!(error.contains("cannot search the local network: no multicast"), "{error}");
}

#[test]
fn the_network_is_searched_only_if_its_nodes_are_wanted() {
    let never = || panic!("the network was searched");
    let home =
        Home::new("discover-not").file("nodes = [\"discover\"]").set("PENSTOCK_NODES", "tcp:gpu01");
    let config = Config::load_in(&home.surroundings().with_search(never)).unwrap();
    assert_eq!(config.nodes.len(), 1);
    let listen = nodes::read_listeners(
        "discover",
        &Where::Argument("--listen"),
        &home.surroundings().with_search(never),
    );
    assert!(listen.is_err());
}
