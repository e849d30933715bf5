//! `penstock devices`: the devices of the pool.

use std::process::ExitCode;

use penstock_cl_sys::*;
use penstock_client::config::{DEVICES_VARIABLE, NodeAddress};
use penstock_client::{Pool, notice};
use penstock_dql::Query;
use penstock_link::Address;
use penstock_wire::describe::{self, DeviceDescription, NodeDescription, PlatformDescription};
use penstock_wire::library::{DEVICE_LIBRARIES, Kind, Libraries};
use serde::Serialize;
use serde_json::json;

use crate::args::DevicesArgs;
use crate::doctor;
use crate::failure::Failure;
use crate::run::{Found, Wishes, configured, find_nodes, is_this_host};
use crate::table::{self, Table};

const CL_DEVICE_TYPES: [(u64, &str); 4] = [
    (CL_DEVICE_TYPE_GPU, "GPU"),
    (CL_DEVICE_TYPE_ACCELERATOR, "accelerator"),
    (CL_DEVICE_TYPE_CPU, "CPU"),
    (CL_DEVICE_TYPE_CUSTOM, "custom"),
];

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Device {
    node: String,
    address: String,
    /// Index in the node, counted over all platforms.
    index: u32,
    platform: String,
    name: String,
    r#type: &'static str,
    compute_units: u64,
    memory_bytes: u64,
    version: String,
    /// CUDA's libraries whose calls the device serves.
    libraries: Vec<&'static str>,
    /// CUDA's libraries that the device could serve, each with what its node lacks.
    missing_libraries: Vec<MissingLibrary>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct MissingLibrary {
    library: &'static str,
    needs: &'static str,
    /// The packages of Debian.
    packages: &'static str,
}

/// Lists all devices of the pool, or those that a query selects.
pub fn devices(args: &DevicesArgs) -> Result<ExitCode, Failure> {
    // The query is parsed first: a wrong query is reported without asking a node.
    let query = args.query.as_deref().map(Query::parse).transpose().map_err(Failure::Query)?;
    let config = configured(args.nodes.as_deref())?;
    let query = query.as_ref().or(config.devices.as_ref());
    // The directory is held until the end, because it contains the socket of the daemon for the
    // local devices.
    // The list is there to show which nodes answer, so missing ones do not end the command.
    let wishes = Wishes { no_local: args.no_local, allow_missing: true, ..Wishes::default() };
    let found = find_nodes(&config, wishes);
    // With --no-local the devices of this host are not wanted.
    let found = found.inspect_err(|_| {
        if !args.no_local {
            doctor::hint()
        }
    })?;
    let Found { nodes, silent, directory: _directory } = found;
    let nodes: Vec<NodeAddress> = nodes.into_iter().map(|(node, _)| node).collect();
    let addresses: Vec<Address> = nodes.iter().map(|node| node.address.clone()).collect();
    let pool = Pool::open(&addresses, &config.load_keys()?, config.timeout, notice::print);
    let devices: Vec<Device> =
        pool.select(query).iter().filter_map(|device| describe_selected(&pool, device)).collect();
    if args.json {
        let absent =
            pool.absent().iter().map(|(address, error)| (address.to_string(), error.to_string()));
        let silent = silent.iter().map(|(node, error)| (node.to_string(), error.to_string()));
        let absent: Vec<_> = silent
            .chain(absent)
            .map(|(address, error)| json!({ "address": address, "error": error }))
            .collect();
        table::print(&format!("{:#}\n", json!({ "devices": devices, "absent": absent })))?;
    } else if !devices.is_empty() || pool.devices().next().is_none() && !pool.nodes().is_empty() {
        table::print(&as_table(&devices, &nodes).render(table::terminal_width()))?;
    }
    // A node that answers and has no device may be another host, whose files are not here.
    if pool.devices().next().is_none() && nodes.iter().any(is_this_host) {
        doctor::hint();
    }
    match pool.devices().count() {
        _ if pool.nodes().is_empty() => Err(Failure::NoneAnswers),
        all if devices.is_empty() && all > 0 => {
            let by = if args.query.is_some() { "the query" } else { DEVICES_VARIABLE };
            Err(Failure::NoneSelected { by, all })
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn describe_selected(pool: &Pool, device: &penstock_client::Device) -> Option<Device> {
    let node = pool.nodes().get(device.node())?;
    let platform = node.description().platforms.get(usize::try_from(device.platform()).ok()?)?;
    let described = platform.devices.iter().find(|it| it.index == device.index())?;
    Some(describe_device(node.address().to_string(), node.description(), platform, described))
}

fn describe_device(
    address: String,
    node: &NodeDescription,
    platform: &PlatformDescription,
    device: &DeviceDescription,
) -> Device {
    let number = |name| describe::find(&device.info, name).map_or(0, number);
    let types = number(CL_DEVICE_TYPE);
    let served = describe::find(&device.info, DEVICE_LIBRARIES).map(Libraries::from_bytes);
    Device {
        node: node.host.clone(),
        address,
        index: device.index,
        platform: text(describe::find(&platform.info, CL_PLATFORM_NAME)),
        name: text(describe::find(&device.info, CL_DEVICE_NAME)),
        r#type: CL_DEVICE_TYPES
            .iter()
            .find(|(bit, _)| types & bit != 0)
            .map_or("unknown", |(_, name)| name),
        compute_units: number(CL_DEVICE_MAX_COMPUTE_UNITS),
        memory_bytes: number(CL_DEVICE_GLOBAL_MEM_SIZE),
        version: text(describe::find(&device.info, CL_DEVICE_VERSION)),
        libraries: served.map_or_else(Vec::new, |served| {
            Kind::ALL.into_iter().filter(|kind| served.has(*kind)).map(Kind::face).collect()
        }),
        // Only devices that compute on the host's memory lack packages.
        missing_libraries: served.filter(|_| device.shares_host_memory).map_or_else(
            Vec::new,
            |served| {
                let missing = |kind: Kind| MissingLibrary {
                    library: kind.face(),
                    needs: kind.provider(),
                    packages: kind.packages(),
                };
                served.missing().map(missing).collect()
            },
        ),
    }
}

fn as_table(devices: &[Device], nodes: &[NodeAddress]) -> Table {
    let mut table = Table::new(&[
        "NODE", "ADDRESS", "PLATFORM", "DEVICE", "TYPE", ">UNITS", ">MEMORY", "VERSION",
    ]);
    for device in devices {
        let node = nodes.iter().find(|node| node.to_string() == device.address);
        // "OpenCL<space><major_version.minor_version><space><vendor-specific information>" (CL_DEVICE_VERSION)
        let version: Vec<_> = device.version.split(' ').take(2).collect();
        table.row(vec![
            device.node.clone(),
            node.map_or_else(|| device.address.clone(), table::address),
            device.platform.clone(),
            device.name.clone(),
            device.r#type.to_owned(),
            device.compute_units.to_string(),
            table::bytes(device.memory_bytes),
            version.join(" "),
        ]);
    }
    table
}

/// Decodes a text of the driver, which ends with a zero byte.
fn text(bytes: Option<&[u8]>) -> String {
    let bytes = bytes.unwrap_or_default();
    String::from_utf8_lossy(bytes.split(|&byte| byte == 0).next().unwrap_or_default())
        .trim()
        .to_owned()
}

/// Decodes a number of the driver: up to 8 bytes, little-endian.
fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use penstock_wire::describe::Turn;

    use super::*;

    #[test]
    fn a_device_is_described_by_what_its_driver_says() {
        let node = NodeDescription {
            host: "gpu01".into(),
            boot: String::new(),
            worker: 1,
            version: "0.1.0".into(),
            addresses: vec![],
            platforms: vec![PlatformDescription {
                info: vec![(CL_PLATFORM_NAME, b"Some Platform\0".to_vec())],
                devices: vec![DeviceDescription {
                    index: 3,
                    info: vec![
                        (CL_DEVICE_TYPE, 5u64.to_le_bytes().to_vec()),
                        (CL_DEVICE_NAME, b"Some GPU \0".to_vec()),
                        (CL_DEVICE_MAX_COMPUTE_UNITS, 80u32.to_le_bytes().to_vec()),
                        (CL_DEVICE_GLOBAL_MEM_SIZE, (8u64 << 30).to_le_bytes().to_vec()),
                        (DEVICE_LIBRARIES, 1u64.to_le_bytes().to_vec()),
                    ],
                    shares_host_memory: true,
                    ..DeviceDescription::default()
                }],
            }],
            turn: Turn::default(),
        };
        let platform = &node.platforms[0];
        let devices =
            [describe_device("tcp:gpu01:7367".into(), &node, platform, &platform.devices[0])];
        assert_eq!(
            as_table(&devices, &[]).render(None).lines().nth(1),
            Some("gpu01  tcp:gpu01:7367  Some Platform  Some GPU  GPU      80   8 GiB")
        );
        assert_eq!((devices[0].index, devices[0].version.as_str()), (3, ""));
        assert_eq!(devices[0].libraries, ["cuBLAS"]);
        assert_eq!(devices[0].missing_libraries[0].needs, "FFTW");
    }

    #[test]
    fn answers_of_any_length_are_numbers() {
        assert_eq!(
            (number(&[]), number(&[1, 0, 0, 0]), number(&[0, 1, 0, 0, 0, 0, 0, 0, 9])),
            (0, 1, 256)
        );
    }
}
