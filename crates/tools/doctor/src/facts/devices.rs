//! Device nodes of accelerators, and NVIDIA's driver.

use super::files::find_library;
use super::pci::{Maker, Pci};
use crate::tree::{Answers, Node, Tree, keep};

/// A node in `/dev` through which programs use accelerators.
#[derive(Clone, Debug)]
pub struct DeviceNode {
    /// Path from the root.
    pub path: String,
    pub node: Node,
    pub maker: Maker,
}

/// Reads the device nodes of accelerators and of RDMA cards.
pub fn read(tree: &Tree, pci: &[Pci]) -> Vec<DeviceNode> {
    let mut paths: Vec<(String, Maker)> = Vec::new();
    let dev = tree.list("dev");
    let is_card = |name: &str| {
        let number = name.strip_prefix("nvidia").unwrap_or("x");
        !number.is_empty() && number.chars().all(|digit| digit.is_ascii_digit())
    };
    for name in &dev {
        if is_card(name) || name == "nvidiactl" || name == "nvidia-uvm" {
            paths.push((format!("dev/{name}"), Maker::Nvidia));
        }
    }
    if dev.iter().any(|name| name == "kfd") {
        paths.push(("dev/kfd".to_owned(), Maker::Amd));
    }
    for name in tree.list("dev/dri").into_iter().filter(|name| name.starts_with("renderD")) {
        let card = tree.target_name(&format!("sys/class/drm/{name}/device"));
        let card = pci.iter().find(|device| Some(&device.address) == card.as_ref());
        paths.push((format!("dev/dri/{name}"), card.map_or(Maker::Other, Pci::maker)));
    }
    let node =
        |(path, maker): (String, Maker)| Some(DeviceNode { node: tree.node(&path)?, path, maker });
    paths.into_iter().filter_map(node).collect()
}

#[derive(Clone, Debug)]
pub struct Nvidia {
    /// Version of the loaded kernel module.
    pub module: Option<String>,
    /// Whether the kernel module is the open one.
    pub is_open: bool,
    /// Version of the driver library, from the name of its file.
    pub library: Option<String>,
    pub has_library: bool,
    /// Whether the module with which RDMA cards reach the memory of GPUs is loaded.
    pub has_peer_memory: bool,
}

impl Nvidia {
    pub fn read(tree: &Tree, answers: &Answers) -> Self {
        let module = tree.read("proc/driver/nvidia/version", version).unwrap_or_default();
        let mut words = module.split_whitespace();
        let version = words.next().map(str::to_owned);
        // Penstock's own library has the same name. NVIDIA's management library does not matter
        // here: both come with the driver.
        let library = find_library(tree, answers, "libcuda.so.1");
        let name = library.as_deref().and_then(|path| path.rsplit('/').next());
        Self {
            module: version,
            is_open: words.next() == Some("open"),
            library: name
                .and_then(|name| name.strip_prefix("libcuda.so."))
                .filter(|version| version.contains('.'))
                .map(str::to_owned),
            has_library: library.is_some(),
            has_peer_memory: tree.exists("sys/module/nvidia_peermem")
                || tree.exists("sys/module/nv_peer_mem"),
        }
    }
}

/// Keeps the version of NVIDIA's kernel module, and whether the module is open. The rest of the
/// file names the host on which the module was compiled.
fn version(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let is_version = |word: &&str| {
        word.contains('.') && word.chars().all(|letter| letter.is_ascii_digit() || letter == '.')
    };
    let Some(version) = line.split_whitespace().find(is_version) else { return String::new() };
    let is_open = line.contains("Open Kernel Module") || line.trim().ends_with(" open");
    format!("{}{}", keep::printable(version), if is_open { " open" } else { "" })
}
