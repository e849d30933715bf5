//! Random command graphs over several ranks have the same result as their commands one after the
//! other.

mod common;

use common::{Cluster, mix};
use penstock_trial::Random;
use water::command::{Arg, Code, Command, CommandId, DeviceId, IndexSpace, ObjectId};
use water::request::Request;
use water::root::cost::{Link, Shape};
use water::root::mode::Mode;

/// Bytes that commands read and write, with their last readers and writers.
#[derive(Default)]
struct TrackedBytes {
    bytes: Vec<u8>,
    writer: Option<CommandId>,
    readers: Vec<CommandId>,
}

impl TrackedBytes {
    fn read(&mut self, id: CommandId) {
        self.readers.push(id);
    }

    fn write(&mut self, id: CommandId) {
        self.writer = Some(id);
        self.readers.clear();
    }

    fn before_reading(&self, waits: &mut Vec<CommandId>) {
        waits.extend(self.writer);
    }

    fn before_writing(&self, waits: &mut Vec<CommandId>) {
        waits.extend(self.writer);
        waits.extend(&self.readers);
    }
}

struct Buffer {
    rank: u32,
    device: u32,
    object: ObjectId,
    content: TrackedBytes,
}

struct Kernel {
    rank: u32,
    device: u32,
    object: ObjectId,
    /// The command that makes the kernel.
    made: CommandId,
}

struct Graph<'a> {
    cluster: &'a Cluster,
    random: Random,
    ranks: u32,
    devices: u32,
    buffers: Vec<Buffer>,
    kernels: Vec<Kernel>,
    /// Memory of the program. It never grows, because commands hold addresses.
    memory: Vec<Box<[u8]>>,
    regions: Vec<TrackedBytes>,
    all: Vec<CommandId>,
    size: usize,
}

impl Graph<'_> {
    fn issue(
        &mut self,
        rank: u32,
        device: u32,
        waits: Vec<CommandId>,
        command: Command,
    ) -> CommandId {
        self.issue_request(waits, Request::new(DeviceId::new(rank, device), command))
    }

    fn issue_request(&mut self, mut waits: Vec<CommandId>, request: Request) -> CommandId {
        if !self.all.is_empty() && self.random.below(100) < 20 {
            let extra = self.random.below(self.all.len() as u64);
            waits.push(self.all[usize::try_from(extra).unwrap()]);
        }
        let id = self.cluster.runtime().with_root(|root| root.issue(waits, request)).unwrap();
        self.all.push(id);
        id
    }

    fn object(&self) -> ObjectId {
        self.cluster.runtime().with_root(water::root::Root::object).unwrap()
    }

    fn set_up(&mut self) {
        for rank in 0..self.ranks {
            for device in 0..self.devices {
                for _ in 0..2 {
                    let buffer = self.object();
                    let command =
                        Command::CreateBuffer { buffer, size: self.size as u64, flags: 1 };
                    let id = self.issue(rank, device, Vec::new(), command);
                    let content = TrackedBytes {
                        bytes: vec![0xEE; self.size],
                        writer: Some(id),
                        readers: Vec::new(),
                    };
                    self.buffers.push(Buffer { rank, device, object: buffer, content });
                }
                let kernel = self.object();
                let code = Code::Source(b"mix".to_vec());
                let command = Command::CreateKernel {
                    kernel,
                    code,
                    name: "mix".into(),
                    options: String::new(),
                };
                let id = self.issue(rank, device, Vec::new(), command);
                self.kernels.push(Kernel { rank, device, object: kernel, made: id });
            }
        }
    }

    fn pick(&mut self, count: usize) -> usize {
        usize::try_from(self.random.below(count as u64)).unwrap()
    }

    /// Returns a range of bytes, often the whole.
    fn range(&mut self) -> (usize, usize) {
        if self.random.below(100) < 60 {
            return (0, self.size);
        }
        let start = self.pick(self.size);
        (start, 1 + self.pick(self.size - start))
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..15 => self.broadcast(),
            15..45 => self.write(),
            45..65 => self.run(),
            65..73 => self.copy(),
            73..80 => self.copies(),
            _ => self.read(),
        }
        if self.random.below(100) < 3 {
            self.cluster.runtime().flush();
        }
    }

    fn write(&mut self) {
        let (region, buffer, (start, length)) =
            (self.pick(self.regions.len()), self.pick(self.buffers.len()), self.range());
        self.write_to(region, buffer, start, length);
    }

    /// Writes the same bytes to many buffers, which a runtime may turn into a collective.
    fn broadcast(&mut self) {
        let (region, (start, length)) = (self.pick(self.regions.len()), self.range());
        for buffer in 0..self.buffers.len() {
            if self.random.below(100) < 70 {
                self.write_to(region, buffer, start, length);
            }
        }
    }

    fn write_to(&mut self, region: usize, buffer: usize, start: usize, length: usize) {
        let mut waits = Vec::new();
        self.regions[region].before_reading(&mut waits);
        self.buffers[buffer].content.before_writing(&mut waits);
        let Buffer { rank, device, object, .. } = self.buffers[buffer];
        let address = self.memory[region][start..].as_ptr().expose_provenance() as u64;
        let command =
            Command::Write { buffer: object, offset: start as u64, size: length as u64, address };
        let id = self.issue(rank, device, waits, command);
        self.regions[region].read(id);
        let bytes = self.regions[region].bytes[start..start + length].to_vec();
        let content = &mut self.buffers[buffer].content;
        content.bytes[start..start + length].copy_from_slice(&bytes);
        content.write(id);
    }

    fn read(&mut self) {
        let (region, buffer, (start, length)) =
            (self.pick(self.regions.len()), self.pick(self.buffers.len()), self.range());
        let mut waits = Vec::new();
        self.regions[region].before_writing(&mut waits);
        self.buffers[buffer].content.before_reading(&mut waits);
        let Buffer { rank, device, object, .. } = self.buffers[buffer];
        let address = self.memory[region][start..].as_mut_ptr().expose_provenance() as u64;
        let command =
            Command::Read { buffer: object, offset: start as u64, size: length as u64, address };
        let id = self.issue(rank, device, waits, command);
        self.buffers[buffer].content.read(id);
        let bytes = self.buffers[buffer].content.bytes[start..start + length].to_vec();
        self.regions[region].bytes[start..start + length].copy_from_slice(&bytes);
        self.regions[region].write(id);
    }

    fn run(&mut self) {
        let kernel = self.pick(self.kernels.len());
        let Kernel { rank, device, object, made } = self.kernels[kernel];
        let (target, other) = (kernel * 2, kernel * 2 + 1);
        let number = u8::try_from(self.random.below(256)).unwrap();
        let mut waits = vec![made];
        self.buffers[target].content.before_writing(&mut waits);
        self.buffers[other].content.before_reading(&mut waits);
        let args = vec![
            Arg::Buffer(self.buffers[target].object),
            Arg::Buffer(self.buffers[other].object),
            Arg::Bytes(vec![number]),
        ];
        let range = IndexSpace::line(1, None);
        let id = self.issue(rank, device, waits, Command::Run { kernel: object, range, args });
        let beside = self.buffers[other].content.bytes.clone();
        mix(&mut self.buffers[target].content.bytes, &beside, number);
        self.buffers[target].content.write(id);
        self.buffers[other].content.read(id);
    }

    fn copy(&mut self) {
        let (from, to, (start, length)) =
            (self.pick(self.buffers.len()), self.pick(self.buffers.len()), self.range());
        if from != to {
            self.copy_to(from, to, start, length);
        }
    }

    /// Copies the same bytes of one buffer to many.
    fn copies(&mut self) {
        let (from, (start, length)) = (self.pick(self.buffers.len()), self.range());
        for to in 0..self.buffers.len() {
            if to != from && self.random.below(100) < 70 {
                self.copy_to(from, to, start, length);
            }
        }
    }

    fn copy_to(&mut self, from: usize, to: usize, start: usize, length: usize) {
        let mut waits = Vec::new();
        self.buffers[from].content.before_reading(&mut waits);
        self.buffers[to].content.before_writing(&mut waits);
        let Buffer { rank: from_rank, device: from_device, object: source, .. } =
            self.buffers[from];
        let Buffer { rank, device, object: target, .. } = self.buffers[to];
        let command = Command::Copy {
            from: source,
            from_offset: start as u64,
            to: target,
            to_offset: start as u64,
            size: length as u64,
        };
        let request = Request::new(DeviceId::new(rank, device), command)
            .from(DeviceId::new(from_rank, from_device));
        let id = self.issue_request(waits, request);
        let bytes = self.buffers[from].content.bytes[start..start + length].to_vec();
        self.buffers[from].content.read(id);
        self.buffers[to].content.bytes[start..start + length].copy_from_slice(&bytes);
        self.buffers[to].content.write(id);
    }

    /// Reads all buffers back, and compares them with the expected bytes.
    fn check(mut self, seed: u64) {
        let mut results: Vec<Vec<u8>> = self.buffers.iter().map(|_| vec![0; self.size]).collect();
        let mut reads = Vec::new();
        for (index, result) in results.iter_mut().enumerate() {
            let Buffer { rank, device, object: buffer, content } = &self.buffers[index];
            let address = result.as_mut_ptr().expose_provenance() as u64;
            let command =
                Command::Read { buffer: *buffer, offset: 0, size: self.size as u64, address };
            let waits = content.writer.into_iter().collect();
            reads.push(
                self.cluster
                    .runtime()
                    .with_root(|root| {
                        root.issue(waits, Request::new(DeviceId::new(*rank, *device), command))
                    })
                    .unwrap(),
            );
        }
        reads.append(&mut self.all);
        self.cluster.runtime().wait(&reads).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        for (index, (result, Buffer { rank, device, content, .. })) in
            results.iter().zip(&self.buffers).enumerate()
        {
            assert!(
                *result == content.bytes,
                "seed {seed}: buffer {index} of rank {rank}, device {device} is wrong"
            );
        }
        for (index, (region, memory)) in self.regions.iter().zip(&self.memory).enumerate() {
            assert!(
                region.bytes[..] == memory[..],
                "seed {seed}: memory {index} of the program is wrong"
            );
        }
        self.cluster.runtime().with_root(|root| reads.iter().for_each(|id| root.let_go(*id)));
    }
}

fn graph(cluster: &Cluster, seed: u64, ranks: u32, devices: u32) {
    let mut random = Random::new(seed);
    // Most buffers are small enough for eager streams; some take several pieces.
    let size = match random.below(100) {
        0..3 => 300_000,
        3..20 => 40_000,
        _ => 64,
    };
    let memory: Vec<Box<[u8]>> = (0..4_u8)
        .map(|region| {
            (0..size).map(|index| u8::try_from(index % 256).unwrap() ^ (region * 57)).collect()
        })
        .collect();
    let regions = memory
        .iter()
        .map(|memory| TrackedBytes { bytes: memory.to_vec(), ..TrackedBytes::default() })
        .collect();
    let steps = 5 + random.below(40);
    let mut graph = Graph {
        cluster,
        random,
        ranks,
        devices,
        buffers: Vec::new(),
        kernels: Vec::new(),
        memory,
        regions,
        all: Vec::new(),
        size,
    };
    graph.set_up();
    for _ in 0..steps {
        graph.step();
    }
    graph.check(seed);
}

fn count() -> u64 {
    std::env::var("GRAPHS").ok().and_then(|count| count.parse().ok()).unwrap_or(600)
}

#[test]
fn random_graphs_give_what_their_commands_give_in_order() {
    for (mode, shape) in [
        (Mode::Off, None),
        (Mode::Paper, None),
        (Mode::Auto, None),
        (Mode::Auto, Some(Shape::Twin)),
    ] {
        for (ranks, devices) in [(1, 2), (2, 1), (3, 2), (6, 1)] {
            let cluster = Cluster::new(ranks, devices as usize);
            cluster.runtime().with_root(|root| {
                root.set_mode(mode);
                root.set_shape(shape);
                // The link is so slow that every broadcast gains.
                root.set_link(Link { latency_ns: 0.0, overhead_ns: 1e6, byte_ns: 1e5 });
            });
            let first =
                std::env::var("GRAPHS_FIRST").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
            for seed in first..=count() / 16 {
                if std::env::var_os("GRAPHS_TELL").is_some() {
                    eprintln!("{mode:?} {shape:?} {ranks} {devices} {seed}");
                }
                graph(&cluster, seed, ranks, devices);
            }
        }
    }
}
