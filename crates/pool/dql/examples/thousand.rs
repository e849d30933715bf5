//! Filters and sorts 1,000 devices, and prints how long that took.

use std::time::{Duration, Instant};

use penstock_dql::{NodeFacts, Query, RawDevice};

const DEVICES: u32 = 1000;
const RUNS: usize = 200;

fn main() -> Result<(), penstock_dql::Error> {
    let devices: Vec<_> = (0..DEVICES).map(info).collect();
    let hosts: Vec<_> = (0..DEVICES / 4).map(|node| format!("gpu{node:03}")).collect();
    let devices: Vec<_> = devices
        .iter()
        .zip(0u64..)
        .map(|(info, index)| {
            let hostname = usize::try_from(index / 4).ok().and_then(|node| hosts.get(node));
            let node = NodeFacts {
                hostname: hostname.map(String::as_str),
                rank: Some(index / 4),
                device_index: Some(index % 4),
                ..NodeFacts::default()
            };
            RawDevice { info, node }
        })
        .collect();
    for text in [
        "SELECT ALL",
        "SELECT ALL WHERE type = gpu AND vendor = nvidia",
        "SELECT TOP 10 FROM NODE 10-200 WHERE global_memory > 4GB AND extensions HAS cl_khr_fp64 ORDER BY compute_units DESC, clock",
        "SELECT ALL WHERE name LIKE '%card%' ORDER BY memory DESC, name",
    ] {
        let query = Query::parse(text)?;
        let once = || {
            let begun = Instant::now();
            let chosen = std::hint::black_box(query.select(std::hint::black_box(&devices)));
            (begun.elapsed(), chosen.len())
        };
        let mut times: Vec<(Duration, usize)> = (0..RUNS).map(|_| once()).collect();
        times.sort_unstable();
        let (median, chosen) = times[RUNS / 2];
        println!("{:>6.1} µs  {chosen:>4} of {DEVICES}  {query}", median.as_secs_f64() * 1e6);
    }
    Ok(())
}

/// Returns as many answers as a driver gives.
fn info(number: u32) -> Vec<(u32, Vec<u8>)> {
    let mut info: Vec<(u32, Vec<u8>)> = (0x1000..0x1073).map(|query| (query, vec![0; 4])).collect();
    let mut set = |query: usize, bytes: Vec<u8>| info[query - 0x1000].1 = bytes;
    set(0x1000, u64::from(2 + number % 2 * 2).to_ne_bytes().to_vec());
    set(0x1001, [0x10DEu32, 0x1002][usize::from(number.is_multiple_of(3))].to_ne_bytes().to_vec());
    set(0x1002, (number.wrapping_mul(2_654_435_761) % 128).to_ne_bytes().to_vec());
    set(0x100C, (number.wrapping_mul(40_503) % 2000).to_ne_bytes().to_vec());
    set(0x101F, (u64::from(number.wrapping_mul(97) % 64) << 30).to_ne_bytes().to_vec());
    set(0x102B, format!("Some Card {}\0", number % 7).into_bytes());
    set(0x102C, b"Some Vendor Inc.\0".to_vec());
    set(
        0x1030,
        b"cl_khr_icd cl_khr_global_int32_base_atomics cl_khr_local_int32_base_atomics cl_khr_fp64\0".to_vec(),
    );
    info
}
