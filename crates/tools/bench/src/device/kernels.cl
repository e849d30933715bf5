/* The benchmark's kernels. On CPU devices each runs with one work-item: a work-group there is one
 * thread, and one work-item copies as fast as many. On a GPU a block sends together:
 * tools/cuda/bench-kernels.sh compiles this file as CUDA C++ to kernels.ptx. */
#ifndef GGAS_H
#include <ggas.h>
#endif

#ifdef __CUDACC__
#define __kernel extern "C" __global__
#define __global
typedef unsigned long ulong;
typedef unsigned int uint;
#define FIRST (threadIdx.x == 0)
#define TOGETHER() __syncthreads()
/* Gives all threads the status of the first thread. */
#define AGREED(status) ggas_raw_agree(status)
#define SEND ggas_put_signal_nbi_wg
#define WAIT(g, at, value) ggas_wait_until_wg(g, at, GGAS_CMP_GE, value, &scratch)
#define SCRATCH __shared__ int scratch;
#else
#define FIRST 1
#define TOGETHER() ((void)0)
#define AGREED(status) (status)
#define SEND ggas_put_signal_nbi
#define WAIT(g, at, value) ggas_wait_until(g, at, GGAS_CMP_GE, value)
#define SCRATCH
#endif

/* Offsets in a part. device/mod.rs has the same. */
#define AT_DATA 0
#define AT_ACK 64
#define AT_PHASES 128
#define AT_RESULT 8192
#define AT_STAMPS 12288

/* Returns the ticks of a clock that all cores of the host share and that the host reads, too; on a
 * GPU nanoseconds; 0 if no clock is known. */
GGAS_FUNCTION ulong ticks(void) {
#if defined(TICKS)
    return TICKS();
#elif defined(__CUDACC__)
    ulong now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now) : : "memory");
    return now;
#elif defined(__x86_64__)
    uint low, high;
    __asm__ __volatile__("rdtsc" : "=a"(low), "=d"(high) : : "memory");
    return (ulong)high << 32 | low;
#elif defined(__aarch64__)
    ulong now;
    __asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(now) : : "memory");
    return now;
#else
    return 0;
#endif
}

/* Returns the first word of a message, which differs for each message. The last word, if there are
 * several, is the complement of the first: if the signal comes before the whole message, the
 * receiver finds an old last word. */
GGAS_FUNCTION ulong stamp(ulong seed, ulong message) {
    return (seed << 40 ^ message) * 0x9e3779b97f4a7c15UL;
}

GGAS_FUNCTION void put_stamps(volatile __global ulong *message, ulong last, ulong first) {
    message[last] = ~first;
    message[0] = first;
}

/* Results of a kernel's checks. */
typedef struct {
    ulong checked, wrong, found, expected;
} checks_t;

GGAS_FUNCTION __global ulong *word(ggas_t g, ulong offset) {
    return (__global ulong *)ggas_ptr(g, offset, ggas_my_pe(g));
}

GGAS_FUNCTION void check(checks_t *checks, ulong found, ulong expected) {
    checks->checked++;
    if (found != expected && checks->wrong++ == 0) {
        checks->found = found;
        checks->expected = expected;
    }
}

GGAS_FUNCTION void check_stamps(checks_t *checks, const volatile __global ulong *message,
                                ulong last, ulong first) {
    check(checks, message[0], first);
    if (last != 0) check(checks, message[last], ~first);
}

/* Writes the results. `status` is an int; `done` is the number of samples that were taken. */
GGAS_FUNCTION void tell(ggas_t g, int status, ulong done, checks_t checks) {
    __global ulong *result = word(g, AT_RESULT);
    if (!FIRST) return;
    result[0] = (ulong)(long)status;
    result[1] = done;
    result[2] = checks.checked;
    result[3] = checks.wrong;
    result[4] = checks.found;
    result[5] = checks.expected;
}

/* Sends messages there and back: PE 1 returns what it received. `base` is the last epoch of the
 * previous launch. */
__kernel void ping_pong(__global ggas_heap_t *heap, ulong samples, ulong inner, ulong bytes,
                        ulong window, ulong source, ulong landing, ulong seed, ulong base) {
    SCRATCH
    ggas_t g = ggas_open(heap);
    const uint me = ggas_my_pe(g), peer = 1 - me;
    const ulong last = bytes / 8 - 1;
    volatile __global ulong *out = word(g, source), *in = word(g, landing);
    __global ulong *stamps = word(g, AT_STAMPS);
    checks_t checks = {0, 0, 0, 0};
    ulong round = 0;
    for (ulong sample = 0; sample < samples; sample++) {
        if (me == 0 && FIRST) stamps[sample] = ticks();
        for (ulong i = 0; i < inner; i++) {
            round++;
            const ulong expected = stamp(seed, round);
            int status = GGAS_OK;
            if (me == 0) {
                if (FIRST) put_stamps(out, last, expected);
                TOGETHER();
                status = SEND(g, landing, source, bytes, AT_DATA, base + round, peer);
            }
            if (status == GGAS_OK) status = WAIT(g, AT_DATA, base + round);
            if (status == GGAS_OK && FIRST) check_stamps(&checks, in, last, expected);
            if (status == GGAS_OK && me == 1)
                status = SEND(g, landing, landing, bytes, AT_DATA, base + round, peer);
            if (status != GGAS_OK) {
                tell(g, status, sample, checks);
                return;
            }
        }
    }
    if (me == 0 && FIRST) stamps[samples] = ticks();
    tell(g, GGAS_OK, samples, checks);
}

/* Sends messages from PE 0 to PE 1, with a window of them under way. */
__kernel void bandwidth(__global ggas_heap_t *heap, ulong samples, ulong inner, ulong bytes,
                        ulong window, ulong source, ulong landing, ulong seed, ulong base) {
    SCRATCH
    ggas_t g = ggas_open(heap);
    const uint me = ggas_my_pe(g);
    __global ulong *stamps = word(g, AT_STAMPS);
    checks_t checks = {0, 0, 0, 0};
    const ulong all = samples * inner, last = bytes / 8 - 1;
    /* PE 1 acknowledges each half of the window. */
    const ulong half_window = window > 1 ? window / 2 : 1;
    int status = GGAS_OK;
    ulong message = 0;
    for (ulong sample = 0; sample < samples; sample++) {
        if (me == 0 && FIRST) stamps[sample] = ticks();
        for (ulong i = 0; i < inner && status == GGAS_OK; i++) {
            const ulong slot = message % window * bytes;
            message++;
            const ulong expected = stamp(seed, message);
            if (me == 0) {
                if (message > window) status = WAIT(g, AT_ACK, base + message - window);
                if (status != GGAS_OK) break;
                if (FIRST) put_stamps(word(g, source + slot), last, expected);
                TOGETHER();
                status = SEND(g, landing + slot, source + slot, bytes, AT_DATA, base + message, 1);
            } else {
                status = WAIT(g, AT_DATA, base + message);
                if (status != GGAS_OK) break;
                if (FIRST) check_stamps(&checks, word(g, landing + slot), last, expected);
                if (message % half_window == 0 || message == all) {
                    if (FIRST) status = ggas_signal(g, AT_ACK, base + message, 0);
                    status = AGREED(status);
                }
            }
        }
        if (status != GGAS_OK) {
            tell(g, status, sample, checks);
            return;
        }
    }
    if (me == 0) {
        status = WAIT(g, AT_ACK, base + all);
        if (FIRST) stamps[samples] = ticks();
    }
    tell(g, status, samples, checks);
}

/* Runs barriers of all PEs. If `bytes` is not 0, each PE sends its round to all others before a
 * barrier and checks theirs after it. */
__kernel void meet(__global ggas_heap_t *heap, ulong samples, ulong inner, ulong bytes,
                   ulong window, ulong source, ulong landing, ulong seed, ulong base) {
    ggas_t g = ggas_open(heap);
    const uint me = ggas_my_pe(g), count = ggas_n_pes(g);
    __global ulong *stamps = word(g, AT_STAMPS);
    checks_t checks = {0, 0, 0, 0};
    ulong round = base;
    for (ulong sample = 0; sample < samples; sample++) {
        if (me == 0 && FIRST) stamps[sample] = ticks();
        for (ulong i = 0; i < inner; i++) {
            round++;
            if (bytes != 0 && FIRST)
                for (uint pe = 0; pe < count; pe++) ggas_p64(g, AT_PHASES + me * 64, round, pe);
            const int status = ggas_barrier_all(g);
            if (status != GGAS_OK) {
                tell(g, status, sample, checks);
                return;
            }
            if (bytes != 0 && FIRST)
                for (uint pe = 0; pe < count; pe++) {
                    const ulong seen = *(volatile __global ulong *)word(g, AT_PHASES + pe * 64);
                    /* A faster PE may be in its next round, but no further. */
                    check(&checks, seen, seen == round + 1 ? seen : round);
                }
        }
    }
    if (me == 0 && FIRST) stamps[samples] = ticks();
    tell(g, GGAS_OK, samples, checks);
}
