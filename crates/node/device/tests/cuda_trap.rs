//! Test of a kernel that ends its context, in a process of its own, which it leaves unusable.

mod cuda_common;

use cuda_common::*;
use penstock_device::{Status, Want};
use penstock_wire::cuda;

const LAUNCH_FAILED: u32 = 719;

#[test]
fn all_commands_behind_a_fault_end_with_what_happened() {
    let Some((context, queue)) = first(Setup { newer: true, loader: false }, 0) else { return };
    let mem = buffer(&context, 1 << 20);
    let trap = kernel(&context, "trap");
    let code = |status: Status| cuda::code(status);
    // If the kernel traps fast, the launch itself fails and has no event.
    let event = queue.launch(&trap, &one(), &[], Want::Event).map(Option::unwrap);
    let ended = match &event {
        Ok(event) => completion(event).recv_timeout(patience()).unwrap().0,
        Err(status) => *status,
    };
    assert_eq!(code(ended), Some(LAUNCH_FAILED));
    assert_eq!(queue.finish().map_err(code), Err(Some(LAUNCH_FAILED)));
    assert_eq!(
        queue.launch(&trap, &one(), &[], Want::Event).map_err(code).err(),
        Some(Some(LAUNCH_FAILED))
    );
    // The read fails, because its bytes never came.
    let read = queue.read(&mem, 0, mem.size(), &[]).and_then(|reading| reading.wait().map(|_| ()));
    assert_eq!(read.map_err(code), Err(Some(LAUNCH_FAILED)));
    assert_eq!(
        code(penstock_device::Mem::buffer(&context, 1, 64).err().unwrap()),
        Some(LAUNCH_FAILED)
    );
    assert_eq!(ended.to_string(), "CUDA_ERROR_LAUNCH_FAILED (719)");
    // Dropping everything must not hang.
    drop((mem, trap, event, queue, context));
}
