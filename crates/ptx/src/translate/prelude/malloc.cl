//@ ps_malloc
// Memory for a kernel, or 0. The control block has the address of a table and the number of units
// of 64 bytes, which follow the table. The table has a word for each unit: 0 if it is free, the
// number of units for the first one of a block, and all ones for the others. A thread claims one
// unit after the other, and gives them back if another one was faster, so that no thread waits for
// another.
ulong ps_malloc(__global uchar *control, volatile __global uint *table, ulong size) {
    const uint units = *(__global a_uint *)(control + 176);
    if (size == 0UL || size > 64UL * units) return 0UL;
    const uint wanted = (uint)((size + 63UL) / 64UL);
    // Threads that start at different places seldom meet.
    uint at = atomic_add((volatile __global uint *)(control + 180), wanted) % units;
    for (ulong seen = 0; seen < 2UL * units;) {
        if (wanted > units - at) {
            seen += units - at;
            at = 0;
            continue;
        }
        uint has = 0;
        while (has < wanted && atomic_cmpxchg(table + at + has, 0u, ~0u) == 0u) has++;
        if (has == wanted) {
            atomic_xchg(table + at, wanted);
            ps_fence();
            return *(__global a_ulong *)(control + 168) + 4UL * units + 64UL * at;
        }
        for (uint back = has; back-- > 0u;) atomic_xchg(table + at + back, 0u);
        seen += has + 1u;
        at = (at + has + 1u) % units;
    }
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
            return;
        }
    }
    ps_fault(control, 1u, address, line);
}
