//@ ps_malloc
// Memory for a kernel, or 0. The control block has the address of a table, and the number of units
// of 64 bytes, which follow the table. The table has a word for each unit: 0 if it is free, the
// number of units for the first one of a block, and all ones for the others.
//
// A thread first takes the units that it wants from the number of free ones, so that a call for
// which there are too few ends at once and touches no other word. Then the thread claims one unit
// after the other. It gives them back and goes on if it meets a unit that is taken, so that no
// thread waits for another.
//
// The result is 0 although there are enough free units if no row of them is long enough, or if the
// units change hands around the thread in all eight scans.
ulong ps_malloc(__global uchar *control, volatile __global uint *table, ulong size) {
    const uint units = *(__global a_uint *)(control + 176);
    if (size == 0UL || size > 64UL * units) return 0UL;
    const uint wanted = (uint)((size + 63UL) / 64UL);
    volatile __global uint *left = (volatile __global uint *)(control + 184);
    volatile __global uint *sum = (volatile __global uint *)(control + 180);
    for (uint before = atomic_or(left, 0u), now;; before = now) {
        if (before < wanted) return 0UL;
        now = atomic_cmpxchg(left, before, before - wanted);
        if (now == before) break;
    }
    // Threads that start at different places seldom meet.
    uint at = atomic_add(sum, wanted) % units;
    for (uint scan = 0; scan < 8u; scan++) {
        const uint began = atomic_or(sum, 0u);
        bool unfinished = false;
        while (wanted <= units - at) {
            uint has = 0, met = 0;
            while (has < wanted && (met = atomic_cmpxchg(table + at + has, 0u, ~0u)) == 0u) has++;
            if (has == wanted) {
                atomic_xchg(table + at, wanted);
                ps_fence();
                return *(__global a_ulong *)(control + 168) + 4UL * units + 64UL * at;
            }
            for (uint back = has; back-- > 0u;) atomic_xchg(table + at + back, 0u);
            at += has;
            // Where a block could begin, all ones are of a thread that claims or frees units. It
            // may leave them free.
            if (met == ~0u) {
                unfinished = true;
                met = 1u;
            }
            at += min(met, units - at);
        }
        at = 0;
        // The first scan begins anywhere, so that it may have begun inside of a block. Units that
        // were freed behind a later scan matter if another call took those in front of it.
        if (scan > 0u && !unfinished && atomic_or(sum, 0u) == began) break;
    }
    atomic_add(left, wanted);
    return 0UL;
}
//@ ps_free
// Gives back what ps_malloc() gave. Another address is a fault.
void ps_free(__global uchar *control, volatile __global uint *table, ulong address, uint line) {
    if (address == 0UL) return;
    const uint units = *(__global a_uint *)(control + 176);
    const ulong offset = address - (*(__global a_ulong *)(control + 168) + 4UL * units);
    if (offset < 64UL * units && offset % 64UL == 0UL) {
        volatile __global uint *first = table + offset / 64UL;
        const uint count = atomic_or(first, 0u);
        // Of several threads that free a block, one succeeds.
        if (count != 0u && count != ~0u && atomic_cmpxchg(first, count, ~0u) == count) {
            ps_fence();
            for (uint unit = count; unit-- > 0u;) atomic_xchg(first + unit, 0u);
            atomic_add((volatile __global uint *)(control + 184), count);
            return;
        }
    }
    ps_fault(control, 1u, address, line);
}
