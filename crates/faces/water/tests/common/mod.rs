//! A back end whose buffers are bytes and whose kernel is a formula, and runs of several ranks in
//! one process.
#![allow(dead_code, reason = "each test uses a part")]

pub mod doomed;

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;

use penstock_cl_sys::{CL_DEVICE_NAME, CL_DEVICE_TYPE, CL_DEVICE_TYPE_CPU};
use water::backend::{Backend, Ended, Failure};
use water::clock::{Clock, Real};
use water::command::{Arg, Command, CommandId, DeviceInfo, ObjectId, Times};
use water::doorbell::Doorbell;
use water::runtime::Runtime;
use water::transport::loopback::Loopback;
use water::transport::{Span, Transport};

/// Devices whose buffers are bytes. The kernel `mix` changes its first buffer by its second one and
/// a number; the kernel `fail` fails.
#[derive(Debug)]
pub struct Host {
    devices: Vec<DeviceInfo>,
    buffers: HashMap<ObjectId, Vec<u8>>,
    kernels: HashMap<ObjectId, String>,
    ended: Vec<Ended>,
    bell: Doorbell,
}

impl Host {
    pub fn new(count: usize) -> Self {
        let device = DeviceInfo {
            info: vec![
                (CL_DEVICE_NAME, b"bytes\0".to_vec()),
                (CL_DEVICE_TYPE, CL_DEVICE_TYPE_CPU.to_le_bytes().to_vec()),
            ],
            platform: "host".into(),
            platform_version: "OpenCL 3.0".into(),
            hostname: "here".into(),
            in_pool: None,
        };
        Self {
            devices: vec![device; count],
            buffers: HashMap::new(),
            kernels: HashMap::new(),
            ended: Vec::new(),
            bell: Doorbell::default(),
        }
    }

    fn run(&mut self, command: &Command) -> Result<(), Failure> {
        let missing =
            || Failure { code: -38, message: "no such buffer".into(), log: String::new() };
        match command {
            Command::CreateBuffer { buffer, size, .. } => {
                self.buffers.insert(*buffer, vec![0xEE; usize::try_from(*size).unwrap()]);
            }
            Command::ReleaseBuffer { buffer } => drop(self.buffers.remove(buffer)),
            Command::CreateKernel { kernel, name, .. } => {
                if name == "bad" {
                    return Err(Failure {
                        code: -11,
                        message: "does not build".into(),
                        log: "line 1: bad".into(),
                    });
                }
                self.kernels.insert(*kernel, name.clone());
            }
            Command::ReleaseKernel { kernel } => drop(self.kernels.remove(kernel)),
            Command::Run { kernel, args, .. } => {
                let name = self.kernels.get(kernel).cloned().ok_or_else(missing)?;
                if name == "fail" {
                    return Err(Failure {
                        code: -5,
                        message: "this kernel fails".into(),
                        log: String::new(),
                    });
                }
                let [Arg::Buffer(target), Arg::Buffer(other), Arg::Bytes(number)] = args.as_slice()
                else {
                    panic!("{args:?}")
                };
                let other = self.buffers.get(other).cloned().ok_or_else(missing)?;
                mix(self.buffers.get_mut(target).ok_or_else(missing)?, &other, number[0]);
            }
            Command::Write { buffer, offset, size, address } => {
                let from = Span::of_address(*address, *size);
                let target = self.buffers.get_mut(buffer).ok_or_else(missing)?;
                let offset = usize::try_from(*offset).unwrap();
                // SAFETY: the span stays valid until this operation has ended.
                let bytes = unsafe { std::slice::from_raw_parts(from.start, from.length) };
                target[offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            Command::Read { buffer, offset, size, address } => {
                let into = Span::of_address(*address, *size);
                let source = self.buffers.get(buffer).ok_or_else(missing)?;
                let offset = usize::try_from(*offset).unwrap();
                // SAFETY: as above.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        source[offset..offset + into.length].as_ptr(),
                        into.start,
                        into.length,
                    )
                };
            }
            Command::Copy { from, from_offset, to, to_offset, size } => {
                let (from_offset, size) =
                    (usize::try_from(*from_offset).unwrap(), usize::try_from(*size).unwrap());
                let bytes = self.buffers.get(from).ok_or_else(missing)?
                    [from_offset..from_offset + size]
                    .to_vec();
                let to_offset = usize::try_from(*to_offset).unwrap();
                self.buffers.get_mut(to).ok_or_else(missing)?[to_offset..to_offset + size]
                    .copy_from_slice(&bytes);
            }
            _ => return Err(water::backend::no_heaps("nobody needs them")),
        }
        Ok(())
    }
}

/// Does what the kernel `mix` does.
pub fn mix(target: &mut [u8], other: &[u8], number: u8) {
    for (index, byte) in target.iter_mut().enumerate() {
        let beside = other[index % other.len()];
        *byte = byte.wrapping_mul(31).wrapping_add(beside).wrapping_add(number).rotate_left(1);
    }
}

impl Backend for Host {
    fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    fn orders(&self, earlier: u32, device: u32) -> bool {
        earlier == device
    }

    unsafe fn start(&mut self, id: CommandId, _: u32, command: &Command, _: &[CommandId]) {
        // All operations that were started before have run.
        let outcome = self.run(command);
        self.ended.push(Ended { operation: id, outcome, times: Times::default() });
        self.bell.ring();
    }

    fn poll(&mut self, ended: &mut Vec<Ended>) {
        ended.append(&mut self.ended);
    }

    fn wake_with(&mut self, wake: Doorbell) {
        self.bell = wake;
    }
}

/// A run of several ranks that are threads.
pub struct Cluster {
    pub runtime: Option<Runtime>,
    ranks: Vec<JoinHandle<()>>,
}

impl Cluster {
    pub fn new(ranks: u32, devices: usize) -> Self {
        let mut ends = Loopback::ranks(ranks).into_iter();
        let root = ends.next().unwrap();
        let threads = ends
            .map(|end| {
                std::thread::spawn(move || {
                    Runtime::serve(
                        Box::new(end),
                        Box::new(Host::new(devices)),
                        Arc::new(Real::new()),
                    );
                })
            })
            .collect();
        let clock: Arc<dyn Clock> = Arc::new(Real::new());
        let transport: Box<dyn Transport> = Box::new(root);
        let runtime = Runtime::root(transport, Box::new(Host::new(devices)), clock, true).unwrap();
        Self { runtime: Some(runtime), ranks: threads }
    }

    pub fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.end();
        }
        for rank in self.ranks.drain(..) {
            rank.join().unwrap();
        }
    }
}
