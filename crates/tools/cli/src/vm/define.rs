//! `penstock vm define`: a libvirt domain, or QEMU's command line for the same guest.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use penstock_doctor::{Facts, Tree};
use penstock_process::search;
use penstock_vm::VmError;
use penstock_vm::define::{Address, Disk, DiskFormat, Wishes, plan};

use super::args::{Form, Transport, VmDefineArgs};
use super::run::QEMU;
use crate::doctor::answers::{Ask, of_host};
use crate::failure::Failure;
use crate::table;

/// Where Debian installs QEMU, for a domain that is made on another host.
const QEMU_PATH: &str = "/usr/bin/qemu-system-x86_64";

/// Smallest number that a guest may have for vsock; the smaller ones are the host's.
const CID_MIN: u32 = 3;

/// Prints the definition.
pub fn define(args: &VmDefineArgs) -> Result<ExitCode, Failure> {
    let facts = facts(args.root.as_deref())?;
    let guest = plan(&facts, &wishes(args)?).map_err(VmError::from)?;
    table::print(&match args.format {
        Form::Libvirt => guest.domain().to_string(),
        Form::Qemu => guest.script(),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the facts of this host or of a copy of another one.
pub fn facts(root: Option<&Path>) -> Result<Facts, Failure> {
    let tree = match root {
        Some(root) => Tree::open(root)?,
        None => Tree::of_host(of_host(Ask::Nobody))?,
    };
    Ok(Facts::read(&tree))
}

fn wishes(args: &VmDefineArgs) -> Result<Wishes, Failure> {
    let devices: Vec<Address> = args.device.iter().map(address).collect::<Result<_, _>>()?;
    let is_given = args.no_devices || !devices.is_empty();
    let vsock = args.transport != Transport::Tcp;
    Ok(Wishes {
        name: args.name.clone(),
        emulator: search::program(QEMU.as_ref()).unwrap_or_else(|| PathBuf::from(QEMU_PATH)),
        cpus: args.cpus,
        memory_mib: args.memory,
        node: args.node,
        cid: vsock.then_some(args.cid.unwrap_or(CID_MIN)),
        memory: args.transport == Transport::Shm,
        network: args.network || args.transport == Transport::Tcp,
        disk: args.disk.as_deref().map(disk).transpose()?,
        devices: is_given.then_some(devices),
        no_huge_pages: args.no_huge_pages,
        virtual_iommu: args.virtual_iommu,
    })
}

fn address(text: &String) -> Result<Address, Failure> {
    Address::read(text).ok_or_else(|| Failure::Argument {
        argument: format!("--device {text}"),
        reason: "write the address as `lspci -D` does, such as 0000:65:00.0".to_owned(),
    })
}

fn disk(path: &Path) -> Result<Disk, Failure> {
    let path = std::path::absolute(path).map_err(Failure::file(path, "find"))?;
    let is_qcow2 = path.extension().is_some_and(|ending| ending == "qcow2");
    let format = if is_qcow2 { DiskFormat::Qcow2 } else { DiskFormat::Raw };
    Ok(Disk { path, format })
}
