/* Kernels that store into each other's memory by ggas.h. They compile as CUDA C++ (nvcc, NVRTC),
 * and as C for the stand-in of CUDA's driver, because the functions of ggas.h have the same names
 * in both. A file that includes this one first defines KERNEL and includes ggas.h. */

/* Offsets in a part: signals, results, data. */
#define HEAP_SIGNAL_AT 0
#define HEAP_RESULT_AT 4096
#define HEAP_DATA_AT 8192

/* Returns a word of a message. No two messages have a word in common. */
GGAS_FUNCTION ggas_u64 heap_word(ggas_u64 round, ggas_u32 from, ggas_u64 index) {
    return (round << 32 | (ggas_u64)from << 24 | index) * 0x9E3779B97F4A7C15ul;
}

GGAS_FUNCTION void heap_result(ggas_t g, ggas_u64 index, long value) {
    ((volatile long *)ggas_ptr(g, HEAP_RESULT_AT, ggas_my_pe(g)))[index] = value;
}

/* PEs 0 and 1 send `bytes` in both directions, and the receiver checks each word. The result is the
 * number of correct messages, or the status of a wait. */
KERNEL void heap_ping_pong(ggas_heap_t *heap, ggas_u64 rounds, ggas_u64 bytes) {
    ggas_t g = ggas_open(heap);
    const ggas_u32 me = ggas_my_pe(g), peer = 1 - me;
    const ggas_u64 words = bytes / 8;
    if (me > 1) return;
    volatile ggas_u64 *source = (volatile ggas_u64 *)ggas_ptr(g, HEAP_DATA_AT, me);
    const volatile ggas_u64 *target =
        (const volatile ggas_u64 *)ggas_ptr(g, HEAP_DATA_AT + bytes, me);
    long right = 0;
    int status = GGAS_OK;
    for (ggas_u64 turn = 0; turn < 2 * rounds && status == GGAS_OK; turn++) {
        const ggas_u64 round = turn / 2 + 1;
        if (turn % 2 == me) {
            for (ggas_u64 at = 0; at < words; at++) source[at] = heap_word(round, me, at);
            status = ggas_put_signal(g, HEAP_DATA_AT + bytes, HEAP_DATA_AT, bytes, HEAP_SIGNAL_AT,
                                     round, peer);
        } else {
            ggas_u64 same = 0;
            status = ggas_wait_until(g, HEAP_SIGNAL_AT, GGAS_CMP_GE, round);
            for (ggas_u64 at = 0; at < words && status == GGAS_OK; at++)
                same += target[at] == heap_word(round, peer, at);
            right += same == words;
        }
    }
    heap_result(g, 0, status == GGAS_OK ? right : status);
}

/* In each round every PE writes into every part, all work-groups of all PEs meet at a barrier, and
 * all check the words. The results, one per work-group, are the numbers of correct rounds. */
KERNEL void heap_barriers(ggas_heap_t *heap, ggas_u64 rounds, ggas_u64 groups) {
    ggas_t g = ggas_open(heap);
    const ggas_u32 me = ggas_my_pe(g), n = ggas_n_pes(g);
    const ggas_u64 group = HEAP_GROUP, first = HEAP_ITEM == 0;
    long good = 0;
    int status = GGAS_OK;
    for (ggas_u64 round = 1; round <= rounds && status == GGAS_OK; round++) {
        for (ggas_u32 pe = 0; first && pe < n; pe++)
            status |= ggas_p64(g, HEAP_DATA_AT + 8 * (me * groups + group),
                               heap_word(round, me, group), pe);
        status |= ggas_barrier_all(g);
        ggas_u64 same = 0;
        for (ggas_u64 at = 0; first && at < n * groups; at++)
            same += ((volatile ggas_u64 *)ggas_ptr(g, HEAP_DATA_AT, me))[at] ==
                    heap_word(round, (ggas_u32)(at / groups), at % groups);
        good += same == n * groups;
        status |= ggas_sync_all(g);
    }
    if (first) heap_result(g, group, status == GGAS_OK ? good : status);
}

/* Waits for a signal that never comes. The result is the status. */
KERNEL void heap_wait(ggas_heap_t *heap) {
    ggas_t g = ggas_open(heap);
    heap_result(g, 0, ggas_wait_until(g, HEAP_SIGNAL_AT + 64, GGAS_CMP_EQ, 77));
}
