//! How busy a device is. Known only for devices that use the host's cores and memory.

use std::fs;

use penstock_device as device;
use penstock_wire::calls::{Attached, Serve, Served, to_worker};
use penstock_wire::describe::Sensors;

use crate::session::Session;

impl Serve<to_worker::DeviceSensors> for Session {
    fn serve(&mut self, call: &to_worker::DeviceSensors, _: Attached<'_>) -> Served {
        let sensors = self.objects.device(call.device.get()).map(sensors);
        self.shared.reply(call.request, &sensors);
        Ok(())
    }
}

fn sensors(device: &device::Device) -> Sensors {
    if !device.shares_host_memory() {
        return Sensors::default();
    }
    let cores = fs::read_to_string("/proc/stat").unwrap_or_default();
    let times = core_times(&cores, rustix::param::clock_ticks_per_second());
    Sensors {
        memory_free: penstock_process::host::available_bytes(),
        busy_ns: times.map(|(busy, _)| busy),
        capacity_ns: times.map(|(_, all)| all),
    }
}

/// Returns the busy time and the total time (busy and idle) of all cores since boot, in ns.
///
/// "cpu  user nice system idle iowait irq softirq steal guest guest_nice", in ticks. `user`
/// includes guests' time; stolen time is neither work nor idleness of this host.
fn core_times(stat: &str, ticks_per_second: u64) -> Option<(u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let at = |index: usize| ticks.get(index).copied();
    let (idle, waiting) = (at(3)?, at(4)?);
    let busy = at(0)? + at(1)? + at(2)? + at(5)? + at(6)?;
    let ns = |ticks: u64| ticks.checked_mul(1_000_000_000_u64.checked_div(ticks_per_second)?);
    Some((ns(busy)?, ns(busy + idle + waiting)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read() {
        let stat = "cpu  10 1 5 100 4 2 3 50 7 0\ncpu0 1 2 3 4 5\n";
        assert_eq!(core_times(stat, 100), Some((21 * 10_000_000, 125 * 10_000_000)));
        assert_eq!((core_times("cpu  1 2", 100), core_times(stat, 0)), (None, None));
    }
}
