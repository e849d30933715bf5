//! Latency and throughput of a worker, without the client's library:
//!
//! `cargo run --release --example latency -- ADDRESS`
#![allow(clippy::cast_possible_truncation, reason = "small numbers of the tests themselves")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::{Client, Devices, args};
use penstock_link::{Address, Side};
use penstock_wire::args::Arg;
use penstock_wire::calls::{to_client, to_worker};
use penstock_wire::hello::Role;
use penstock_wire::{Id, Status};

const DEVICES: Devices = Devices::Real;

fn connect(address: &Address) -> Client {
    let deadline = Instant::now() + Duration::from_secs(10);
    let opened = penstock_link::open(address, Role::Client, None, None, deadline).unwrap();
    let mut size = [0; 4];
    opened.stream.read_exact_until(&mut size, deadline).unwrap();
    let mut bytes = vec![0; u32::from_le_bytes(size) as usize];
    opened.stream.read_exact_until(&mut bytes, deadline).unwrap();
    let features = opened.features;
    let link =
        penstock_link::establish(opened.stream, features, Side::Client, to_client::check).unwrap();
    Client::of_link(link.0, link.1)
}

fn median(what: &str, rounds: usize, mut once: impl FnMut()) {
    for _ in 0..rounds / 10 {
        once();
    }
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            once();
            start.elapsed()
        })
        .collect();
    times.sort();
    println!(
        "{what:40} median {:>10.1?}  p10 {:>10.1?}  p99 {:>10.1?}",
        times[rounds / 2],
        times[rounds / 10],
        times[rounds * 99 / 100]
    );
}

fn main() {
    let address: Address = std::env::args().nth(1).expect("an address").parse().unwrap();
    let start = Instant::now();
    let mut client = connect(&address);
    let context = client.context();
    assert_eq!(client.request(to_worker::Ping { request: Id::NONE }, &[]).0, Status::OK);
    println!("connect, describe, first context: {:?}", start.elapsed());
    let queue = client.queue(context, 0);
    let kernel = client.kernel(context, "kernel void nothing(global int *a) {}", "nothing");
    let mem = client.buffer(context, 256 << 20);
    let arguments = args(&[Arg::Mem(mem)]);
    client.launch(queue, kernel, Id::NONE, 1, &[], &arguments);
    assert_eq!(client.finish(queue), Status::OK);

    median("ping", 2000, || {
        client.request(to_worker::Ping { request: Id::NONE }, &[]);
    });
    median("launch and finish", 2000, || {
        client.launch(queue, kernel, Id::NONE, 1, &[], &[]);
        client.finish(queue);
    });
    median("launch with event, wait for it", 2000, || {
        let event = client.id();
        client.launch(queue, kernel, event, 1, &[], &[]);
        client.status(event);
    });
    median("10,000 launches and finish", 20, || {
        for _ in 0..10_000 {
            client.launch(queue, kernel, Id::NONE, 1, &[], &[]);
        }
        client.finish(queue);
    });
    median("2,000 x (write 64 B, launch)", 20, || {
        for _ in 0..2_000 {
            let offset = penstock_wire::U64::ZERO;
            client.send(
                to_worker::WriteBuffer { queue, mem, event: Id::NONE, offset },
                &[],
                &[1; 64],
            );
            client.launch(queue, kernel, Id::NONE, 1, &[], &[]);
        }
        client.finish(queue);
    });
    for size in [4, 64 << 10, 1 << 20, 16 << 20, 256 << 20] {
        let rounds = if size > 1 << 20 { 20 } else { 500 };
        let bytes = vec![1; size];
        median(&format!("blocking write {size}"), rounds, || {
            let event = client.write(queue, mem, 0, &bytes);
            client.status(event);
        });
        let mut into = vec![0; size];
        median(&format!("blocking read {size}"), rounds, || {
            let event = client.id();
            client.inbox.reads.insert(event.get(), std::mem::take(&mut into));
            let (offset, size) = (penstock_wire::U64::ZERO, penstock_wire::U64::new(size as u64));
            client.send(to_worker::ReadBuffer { queue, mem, event, offset, size }, &[], &[]);
            client.status(event);
            into = client.inbox.reads.remove(&event.get()).unwrap();
        });
        median(&format!("write, launch, read {size}"), rounds, || {
            client.send(
                to_worker::WriteBuffer { queue, mem, event: Id::NONE, offset: 0.into() },
                &[],
                &bytes,
            );
            client.launch(queue, kernel, Id::NONE, 1, &[], &[]);
            let event = client.id();
            client.inbox.reads.insert(event.get(), std::mem::take(&mut into));
            let size = penstock_wire::U64::new(size as u64);
            client.send(
                to_worker::ReadBuffer { queue, mem, event, offset: 0.into(), size },
                &[],
                &[],
            );
            client.status(event);
            into = client.inbox.reads.remove(&event.get()).unwrap();
        });
    }
}
