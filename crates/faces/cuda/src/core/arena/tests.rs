use super::*;

/// Adds arenas until the limit, each filled with buffers of `buffer` bytes. Returns the number
/// of arenas and the bytes that the buffers use.
fn filled(buffer: u64, largest: u64, total: u64) -> (usize, u64) {
    let (mut count, mut taken, mut used) = (0, 0, 0);
    let sizes = ArenaSizes { first: GROW_BYTES.min(largest), largest, total };
    while let Some(size) = next_bytes(sizes, false, buffer, count, taken) {
        (count, taken, used) = (count + 1, taken + size, used + size / buffer * buffer);
    }
    (count, used)
}

#[test]
fn arenas_grow_so_that_all_memory_can_be_had() {
    const GIB: u64 = 1 << 30;
    for (largest, total) in [(6 * GIB, 24 * GIB), (24 * GIB, 24 * GIB), (36 * GIB, 144 * GIB)] {
        for buffer in [1 << 20, 200 << 20, 2 * GIB] {
            let (count, used) = filled(buffer, largest, total);
            assert!(used > total / 10 * 9, "{used} of {total} in {buffer}");
            assert!(count < ARENAS_MAX, "{count}");
        }
    }
    // A single arena gets no second one, and no arena is larger than a buffer may be.
    let sizes = ArenaSizes { first: 256, largest: 1024, total: 4096 };
    assert_eq!(next_bytes(sizes, true, 256, 1, 256), None);
    assert_eq!(next_bytes(sizes, false, 1280, 0, 0), None);
    assert_eq!(next_bytes(sizes, false, 256, 3, 3840), Some(256));
}

#[test]
fn what_the_driver_has_for_something_else_never_becomes_free() {
    let mut state = SpaceState::default();
    let live =
        |owner, foreign| Allocation { size: 4, owner, serial: 1, program_may_free: false, foreign };
    state.live.insert(0x1000, live(7, true));
    state.live.insert(0x2000, live(7, false));
    state.live.insert(0x3000, live(8, false));
    state.used = 2 * GRAIN_BYTES;
    assert_eq!(state.free_of(7), [(0x2000, 4)]);
    assert_eq!(state.free.ranges(), [(0x2000, GRAIN_BYTES)]);
    assert_eq!((state.used, state.live.len()), (GRAIN_BYTES, 1));
}

#[test]
fn what_is_in_use_is_free_when_all_that_uses_it_has_ended() {
    let (one, other) = (penstock_client::user_event(), penstock_client::user_event());
    let mut state = SpaceState { used: 3 * GRAIN_BYTES, ..Default::default() };
    state.leave(0x1000, 10, vec![one.clone()]);
    state.leave(0x2000, 256, vec![one.clone(), other.clone()]);
    state.leave(0x3000, 1, vec![other.clone()]);
    state.sweep();
    assert_eq!((state.leaving_bytes, state.free.ranges()), (3 * GRAIN_BYTES, vec![]));
    penstock_client::set_user_event(&other, penstock_wire::Status::OK);
    state.sweep();
    assert_eq!(
        (state.leaving_bytes, state.free.ranges()),
        (2 * GRAIN_BYTES, vec![(0x3000, GRAIN_BYTES)])
    );
    // A failed command has ended, too.
    penstock_client::set_user_event(&one, penstock_wire::Status::NODE_LOST);
    state.sweep();
    assert_eq!((state.leaving_bytes, state.used, state.leaving.len()), (0, 0, 0));
}

#[test]
fn what_the_worker_refused_is_not_asked_for_again() {
    let mut state = SpaceState::default();
    assert!(state.may_share(u64::MAX));
    state.refused = Some(100);
    assert!(state.may_share(99) && !state.may_share(100));
    // Waits for nothing, and takes no more either.
    state.leaving_bytes = LEAVING_BYTES_MAX + 1;
    assert!(!state.may_share(1));
}
