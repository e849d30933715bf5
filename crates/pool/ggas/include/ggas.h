/* ggas.h: kernels that store into each other's memory, signal, wait and meet at barriers without
 * returning to the host.
 *
 * For OpenCL C 1.2 to 3.0 and for CUDA C++ (NVRTC and nvcc, compute capability 7.0 and newer).
 *
 *   __kernel void ping(__global ggas_heap_t *heap, uint rounds)
 *   {
 *       ggas_t g = ggas_open(heap);
 *       uint peer = 1 - ggas_my_pe(g);
 *       for (ulong round = 1; round <= rounds; round++) {
 *           if (ggas_my_pe(g) == 0) ggas_put_signal(g, 64, 64, 8, 0, round, peer);
 *           if (ggas_wait_until(g, 0, GGAS_CMP_GE, round) != GGAS_OK) return;
 *           if (ggas_my_pe(g) == 1) ggas_put_signal(g, 64, 64, 8, 0, round, peer);
 *       }
 *   }
 *
 * A symmetric heap has one part of equal size for each processing element (PE), a device that takes
 * part. A PE number and an offset in bytes from the start of its part name memory, because
 * addresses differ between devices. A kernel gets the heap as one argument and makes a ggas_t from
 * it.
 *
 * Callers: each work-item calls a verb for itself. All work-items of a work-group call a verb whose
 * name ends in _wg, with equal arguments, as they call barrier(). Do not call it in a branch,
 * because compilers for CPUs handle barriers in branches badly. All work-items of all work-groups
 * of the PE's kernel call ggas_barrier* and ggas_sync*. The kernels of all PEs, with all their
 * work-groups, must then be resident at the same time.
 *
 * Order: stores and puts have no order among each other. ggas_put_signal and ggas_signal make
 * visible, together with the signal, everything that the calling work-item (for the _wg form:
 * work-group) has put to the same PE before. A work-item that sees the signal with ggas_wait_until
 * or ggas_test sees those bytes. If three PEs are involved, or another PE is told in another way,
 * call ggas_quiet first.
 *
 * Signals have 8 bytes at an offset that is a multiple of 8. If each signal has one writer, which
 * stores growing values, no signal ever has to be reset (wait with GGAS_CMP_GE).
 *
 * Every wait ends: with the signal, at the heap's bound (GGAS_TIMEOUT), or with an abort
 * (GGAS_ABORTED) by the host or because a member of the heap has ended. A kernel should return
 * after a time-out or an abort. Waits yield to other threads, so PEs may outnumber cores.
 *
 * _wg forms, barriers and syncs return the same status to all work-items of a work-group in CUDA
 * and in OpenCL C 3.0 with __opencl_c_work_group_collective_functions. Elsewhere the status may
 * differ within a work-group if another work-group fails at that moment. A kernel with several
 * work-groups that calls barrier() afterwards must share the first work-item's status through local
 * memory.
 *
 * PEs reach each other by stores or, on other nodes, through a proxy: verbs then write entries into
 * a ring that a thread of the host empties. The verbs and their meaning are the same. Programs that
 * only store are fast in both cases; ggas_ptr tells the cases apart.
 *
 * A program includes this long file by its name alone: compilers may not find a second one.
 *
 * Stores do not check offsets: keep them within the part, as with any pointer. The proxy checks
 * them, and ends the heap on a violation. */
#ifndef GGAS_H
#define GGAS_H

/* Status codes that verbs return. */
#define GGAS_OK 0
/* The wait reached the bound of the heap. */
#define GGAS_TIMEOUT (-1)
/* The host aborted the heap, or a member of the heap has ended. */
#define GGAS_ABORTED (-2)
/* There is no such PE, or the caller is not in the team. */
#define GGAS_INVALID (-3)

/* Comparison of the signal with the value, for ggas_wait_until and ggas_test. */
#define GGAS_CMP_EQ 0
#define GGAS_CMP_NE 1
#define GGAS_CMP_GT 2
#define GGAS_CMP_GE 3
#define GGAS_CMP_LT 4
#define GGAS_CMP_LE 5

/* Maximum number of PEs of a heap, and of teams in use at the same time. */
#define GGAS_PES_MAX 64
#define GGAS_TEAM_SLOTS 8

/* -------------------------------------------------------------------------------------------------
 * The heap's layout. It belongs to the host; kernels use the verbs below.
 */
#if defined(__OPENCL_VERSION__) || defined(__OPENCL_C_VERSION__)
#define GGAS_OPENCL 1
#define GGAS_GLOBAL __global
#define GGAS_SHARED __local
#define GGAS_FUNCTION static inline
typedef ulong ggas_u64;
typedef uint ggas_u32;
typedef uchar ggas_u8;
#else
#define GGAS_OPENCL 0
#define GGAS_GLOBAL
#define GGAS_SHARED
#define GGAS_FUNCTION static __device__ __forceinline__
typedef unsigned long long ggas_u64;
typedef unsigned int ggas_u32;
typedef unsigned char ggas_u8;
#endif

#define GGAS_MAGIC 0x5041454853414747UL /* "GGASHEAP" */
#define GGAS_VERSION 1
#define GGAS_LINE_BYTES 64
#define GGAS_RING_ENTRIES 256
#define GGAS_FLAGS_BYTES (GGAS_TEAM_SLOTS * GGAS_PES_MAX * GGAS_LINE_BYTES)
#define GGAS_NO_SIGNAL 0xFFFFFFFFFFFFFFFFUL

#define GGAS_PATH_MAPPED 1
#define GGAS_PATH_PROXY 2

#define GGAS_KIND_PUT 1
#define GGAS_KIND_STORE_32 2
#define GGAS_KIND_STORE_64 3
#define GGAS_KIND_QUIET 4

typedef struct {
    ggas_u64 sequence; /* position + 1: filled; position + GGAS_RING_ENTRIES: free again */
    ggas_u32 kind;
    ggas_u32 pe;
    ggas_u64 target_at;
    ggas_u64 value;
    ggas_u64 length;
    ggas_u64 signal_at;
    ggas_u64 signal;
    ggas_u64 spare;
} ggas_entry_t;

typedef struct {
    ggas_u32 arrived;
    int status;
    ggas_u64 epoch;
    ggas_u8 pad[48];
} ggas_meeting_t;

typedef struct {
    ggas_u64 magic;
    ggas_u32 version;
    ggas_u32 me;
    ggas_u32 count;
    ggas_u32 looks;
    ggas_u64 stride;
    ggas_u64 bytes;
    ggas_u64 timeout_ms;
    ggas_u64 rounds_max;
    ggas_u8 pad0[8];

    ggas_u64 abort;
    ggas_u64 clock_ms;
    int status;
    ggas_u32 fences;
    ggas_u8 pad1[40];

    ggas_u8 paths[GGAS_PES_MAX];
    ggas_u8 pad2[64];

    ggas_u64 tail;
    ggas_u8 pad3[56];
    ggas_u64 done;
    ggas_u8 pad4[56];
    ggas_u64 settled;
    ggas_u8 pad5[120];

    ggas_meeting_t teams[GGAS_TEAM_SLOTS];
    ggas_u64 met[GGAS_TEAM_SLOTS][GGAS_PES_MAX];
    ggas_u8 pad6[3072];
    ggas_entry_t ring[GGAS_RING_ENTRIES];
} ggas_heap_t;

/* -------------------------------------------------------------------------------------------------
 * Differences between compilers: ordered loads and stores that other processes see, and how to
 * yield.
 *
 * GGAS_ATOMICS overrides the choice below. 3: builtins of the compiler; 2: atomics of C11; 1:
 * volatile accesses with fences, which suffice on devices whose single stores are coherent with the
 * host's (every CPU).
 */
typedef volatile GGAS_GLOBAL ggas_u64 *ggas_word_t;

#if GGAS_OPENCL

#ifndef GGAS_ATOMICS
#ifdef __has_builtin
#if __has_builtin(__atomic_load_n) && __has_builtin(__atomic_compare_exchange_n)
#define GGAS_ATOMICS 3
#endif
#endif
#endif
#ifndef GGAS_ATOMICS
#if __OPENCL_C_VERSION__ >= 300 && defined(__opencl_c_atomic_order_acq_rel) && \
    defined(__opencl_c_atomic_scope_device)
#define GGAS_ATOMICS 2
#elif __OPENCL_C_VERSION__ >= 200 && __OPENCL_C_VERSION__ < 300
#define GGAS_ATOMICS 2
#else
#define GGAS_ATOMICS 1
#endif
#endif

#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif
#ifdef cl_khr_int64_extended_atomics
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable
#endif

#if GGAS_ATOMICS == 3

GGAS_FUNCTION ggas_u64 ggas_raw_load(ggas_word_t word) {
    return __atomic_load_n(word, 2 /* acquire */);
}
GGAS_FUNCTION void ggas_raw_store(ggas_word_t word, ggas_u64 value) {
    __atomic_store_n(word, value, 3 /* release */);
}
GGAS_FUNCTION int ggas_raw_claim(ggas_word_t word, ggas_u64 expected, ggas_u64 desired) {
    ggas_u64 seen = expected;
    return __atomic_compare_exchange_n(word, &seen, desired, 0, 4 /* acquire and release */,
                                       0 /* relaxed */);
}
GGAS_FUNCTION ggas_u32 ggas_raw_count(volatile GGAS_GLOBAL ggas_u32 *word) {
    return __atomic_fetch_add(word, 1u, 4);
}
GGAS_FUNCTION void ggas_raw_fence(void) { __atomic_thread_fence(3 /* release */); }
GGAS_FUNCTION void ggas_raw_fence_full(volatile GGAS_GLOBAL ggas_u32 *word) {
    (void)word;
    __atomic_thread_fence(5 /* sequentially consistent */);
}

#elif GGAS_ATOMICS == 2

/* The widest scope that the compiler knows. */
#if defined(__opencl_c_atomic_scope_all_devices)
#define GGAS_SCOPE memory_scope_all_svm_devices
#elif __OPENCL_C_VERSION__ >= 300
#define GGAS_SCOPE memory_scope_device
#else
#define GGAS_SCOPE memory_scope_all_svm_devices
#endif

GGAS_FUNCTION ggas_u64 ggas_raw_load(ggas_word_t word) {
    return atomic_load_explicit((volatile __global atomic_ulong *)word, memory_order_acquire,
                                GGAS_SCOPE);
}
GGAS_FUNCTION void ggas_raw_store(ggas_word_t word, ggas_u64 value) {
    atomic_store_explicit((volatile __global atomic_ulong *)word, value, memory_order_release,
                          GGAS_SCOPE);
}
GGAS_FUNCTION int ggas_raw_claim(ggas_word_t word, ggas_u64 expected, ggas_u64 desired) {
    ggas_u64 seen = expected;
    return atomic_compare_exchange_strong_explicit((volatile __global atomic_ulong *)word, &seen,
                                                   desired, memory_order_acq_rel,
                                                   memory_order_relaxed, GGAS_SCOPE);
}
GGAS_FUNCTION ggas_u32 ggas_raw_count(volatile GGAS_GLOBAL ggas_u32 *word) {
    return atomic_fetch_add_explicit((volatile __global atomic_uint *)word, 1u,
                                     memory_order_acq_rel, GGAS_SCOPE);
}
GGAS_FUNCTION void ggas_raw_fence(void) {
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_release, GGAS_SCOPE);
}
GGAS_FUNCTION void ggas_raw_fence_full(volatile GGAS_GLOBAL ggas_u32 *word) {
#if __OPENCL_C_VERSION__ < 300 || defined(__opencl_c_atomic_order_seq_cst)
    (void)word;
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_seq_cst, GGAS_SCOPE);
#else
    /* Sequentially consistent fences are an optional feature of OpenCL C 3.0. Without it, later
     * loads may overtake earlier stores at a fence, but not at an atomic update of a word between
     * two fences. */
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acq_rel, GGAS_SCOPE);
    (void)ggas_raw_count(word);
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acq_rel, GGAS_SCOPE);
#endif
}

#else

GGAS_FUNCTION ggas_u64 ggas_raw_load(ggas_word_t word) {
    ggas_u64 value = *word;
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    return value;
}
GGAS_FUNCTION void ggas_raw_store(ggas_word_t word, ggas_u64 value) {
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    *word = value;
}
GGAS_FUNCTION int ggas_raw_claim(ggas_word_t word, ggas_u64 expected, ggas_u64 desired) {
    return atom_cmpxchg(word, expected, desired) == expected;
}
GGAS_FUNCTION ggas_u32 ggas_raw_count(volatile GGAS_GLOBAL ggas_u32 *word) {
    return atomic_inc(word);
}
GGAS_FUNCTION void ggas_raw_fence(void) { mem_fence(CLK_GLOBAL_MEM_FENCE); }
/* A fence of OpenCL 1.2 may let later loads overtake earlier stores, as PoCL's does; an atomic
 * update of a word does not. */
GGAS_FUNCTION void ggas_raw_fence_full(volatile GGAS_GLOBAL ggas_u32 *word) {
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    atomic_inc(word);
    mem_fence(CLK_GLOBAL_MEM_FENCE);
}

#endif

/* Yields to other threads of this core. A program may define GGAS_YIELD() for a compiler with
 * another way.
 *
 * If a yield takes long, a computing thread used the core. The system may let that thread run for
 * its whole time slice after each yield, but soon resumes a thread that slept. So the wait naps
 * from then on, as briefly as the system can (about 50 us). Without GGAS_CYCLES(), a counter of a
 * few GHz, the wait always yields. */
#ifndef GGAS_YIELD
#if defined(cl_intel_vec_len_hint) && defined(__SPIR64__)
/* Intel's runtime for CPUs resolves functions of its process. */
int sched_yield(void);
int usleep(uint);
#define GGAS_YIELD() ((void)sched_yield())
#define GGAS_NAP() ((void)usleep(1))
#define GGAS_CYCLES() ((ulong)__builtin_readcyclecounter())
#elif defined(__linux__) && defined(__x86_64__)
GGAS_FUNCTION void ggas_raw_yield(void) {
    long result;
    __asm__ __volatile__("syscall" : "=a"(result) : "a"(24L) : "rcx", "r11", "memory");
}
GGAS_FUNCTION void ggas_raw_nap(void) {
    long result, wanted[2] = {0, 1};
    __asm__ __volatile__("syscall"
                         : "=a"(result)
                         : "a"(35L), "D"(wanted), "S"(0L)
                         : "rcx", "r11", "memory");
}
#define GGAS_YIELD() ggas_raw_yield()
#define GGAS_NAP() ggas_raw_nap()
#define GGAS_CYCLES() ((ulong)__builtin_readcyclecounter())
#elif defined(__linux__) && defined(__aarch64__)
GGAS_FUNCTION void ggas_raw_yield(void) {
    __asm__ __volatile__("mov x8, #124\n\tsvc #0" : : : "x0", "x8", "memory");
}
#define GGAS_YIELD() ggas_raw_yield()
#else
/* No way is known: if PEs outnumber cores, a wait then lasts as long as the system lets a thread
 * run. */
#define GGAS_YIELD() ((void)0)
#endif
#endif

#ifndef GGAS_NAP
#define GGAS_NAP() GGAS_YIELD()
#define GGAS_CYCLES() ((ggas_u64)0)
#endif

#define GGAS_WG_BARRIER() barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE)

/* Returns the first work-item's status to the whole work-group. Functions of OpenCL C have no local
 * memory of their own, so without the collective function each work-item keeps its own status; not
 * all drivers of OpenCL 2.0 have that function. */
#if __OPENCL_C_VERSION__ >= 300 && defined(__opencl_c_work_group_collective_functions)
GGAS_FUNCTION int ggas_raw_agree(int status) { return work_group_broadcast(status, 0, 0, 0); }
#else
GGAS_FUNCTION int ggas_raw_agree(int status) { return status; }
#endif

GGAS_FUNCTION ggas_u64 ggas_raw_item(void) {
    return (get_local_id(2) * get_local_size(1) + get_local_id(1)) * get_local_size(0) +
           get_local_id(0);
}
GGAS_FUNCTION ggas_u64 ggas_raw_items(void) {
    return get_local_size(0) * get_local_size(1) * get_local_size(2);
}
GGAS_FUNCTION ggas_u64 ggas_raw_groups(void) {
    return get_num_groups(0) * get_num_groups(1) * get_num_groups(2);
}

/* Vectors that are aligned to less than their size. */
typedef ulong16 __attribute__((aligned(8))) ggas_raw_words_t;
typedef uchar16 __attribute__((aligned(1))) ggas_raw_bytes_t;

/* Copies with one work-item. The addresses need no alignment. */
GGAS_FUNCTION void ggas_raw_copy(__global ggas_u8 *to, const __global ggas_u8 *from,
                                 ggas_u64 bytes) {
    ggas_u64 at = 0;
    if ((((ggas_u64)to | (ggas_u64)from) & 7) == 0) {
        for (; at + 128 <= bytes; at += 128)
            *(__global ggas_raw_words_t *)(to + at) =
                *(const __global ggas_raw_words_t *)(from + at);
        for (; at + 8 <= bytes; at += 8)
            *(__global ulong *)(to + at) = *(const __global ulong *)(from + at);
    } else {
        for (; at + 16 <= bytes; at += 16)
            *(__global ggas_raw_bytes_t *)(to + at) =
                *(const __global ggas_raw_bytes_t *)(from + at);
    }
    for (; at < bytes; at++) to[at] = from[at];
}

/* Copies with a work-group. Each work-item copies one contiguous piece, which suits the caches of
 * CPUs. */
GGAS_FUNCTION void ggas_raw_copy_wg(__global ggas_u8 *to, const __global ggas_u8 *from,
                                    ggas_u64 bytes) {
    ggas_u64 piece = ((bytes + ggas_raw_items() - 1) / ggas_raw_items() + 127) & ~(ggas_u64)127;
    ggas_u64 begin = ggas_raw_item() * piece;
    if (begin < bytes) ggas_raw_copy(to + begin, from + begin, min(piece, bytes - begin));
}

#else /* CUDA C++ */

GGAS_FUNCTION ggas_u64 ggas_raw_load(ggas_word_t word) {
    ggas_u64 value;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}
GGAS_FUNCTION void ggas_raw_store(ggas_word_t word, ggas_u64 value) {
    asm volatile("st.release.sys.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}
GGAS_FUNCTION int ggas_raw_claim(ggas_word_t word, ggas_u64 expected, ggas_u64 desired) {
    ggas_u64 seen;
    asm volatile("atom.acq_rel.sys.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(seen)
                 : "l"(word), "l"(expected), "l"(desired)
                 : "memory");
    return seen == expected;
}
GGAS_FUNCTION ggas_u32 ggas_raw_count(volatile ggas_u32 *word) {
    ggas_u32 before;
    asm volatile("atom.acq_rel.sys.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(word) : "memory");
    return before;
}
GGAS_FUNCTION void ggas_raw_fence() { asm volatile("fence.acq_rel.sys;" : : : "memory"); }
GGAS_FUNCTION void ggas_raw_fence_full(volatile ggas_u32 *word) {
    (void)word;
    asm volatile("fence.sc.sys;" : : : "memory");
}

/* On a GPU no thread computes in place of a waiting thread. If PTX is translated for a CPU, a short
 * sleep is a yield, and a long one is a nap: see above. */
#ifndef GGAS_YIELD
#define GGAS_YIELD() __nanosleep(100)
#endif
#define GGAS_NAP() __nanosleep(50000)
#define GGAS_CYCLES() ((ggas_u64)clock64())
#define GGAS_WG_BARRIER() __syncthreads()

GGAS_FUNCTION ggas_u64 ggas_raw_item() {
    return ((ggas_u64)threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}
/* Returns the first work-item's status to the whole work-group. */
GGAS_FUNCTION int ggas_raw_agree(int status) {
    __shared__ int agreed;
    if (ggas_raw_item() == 0) agreed = status;
    __syncthreads();
    status = agreed;
    /* All work-items must have read it before the next use. */
    __syncthreads();
    return status;
}
GGAS_FUNCTION ggas_u64 ggas_raw_items() { return (ggas_u64)blockDim.x * blockDim.y * blockDim.z; }
GGAS_FUNCTION ggas_u64 ggas_raw_groups() { return (ggas_u64)gridDim.x * gridDim.y * gridDim.z; }

/* Copies every `step`th unit from `first` on: neighbours in a warp copy neighbouring units. */
GGAS_FUNCTION void ggas_raw_copy_steps(ggas_u8 *to, const ggas_u8 *from, ggas_u64 bytes,
                                       ggas_u64 first, ggas_u64 step) {
    ggas_u64 whole = 0;
    if ((((ggas_u64)to | (ggas_u64)from) & 15) == 0) {
        whole = bytes / 16;
        for (ggas_u64 at = first; at < whole; at += step)
            ((uint4 *)to)[at] = ((const uint4 *)from)[at];
        whole *= 16;
    } else if ((((ggas_u64)to | (ggas_u64)from) & 7) == 0) {
        whole = bytes / 8;
        for (ggas_u64 at = first; at < whole; at += step)
            ((ggas_u64 *)to)[at] = ((const ggas_u64 *)from)[at];
        whole *= 8;
    }
    for (ggas_u64 at = whole + first; at < bytes; at += step) to[at] = from[at];
}
GGAS_FUNCTION void ggas_raw_copy(ggas_u8 *to, const ggas_u8 *from, ggas_u64 bytes) {
    ggas_raw_copy_steps(to, from, bytes, 0, 1);
}
GGAS_FUNCTION void ggas_raw_copy_wg(ggas_u8 *to, const ggas_u8 *from, ggas_u64 bytes) {
    ggas_raw_copy_steps(to, from, bytes, ggas_raw_item(), ggas_raw_items());
}

#endif

/* -------------------------------------------------------------------------------------------------
 * The heap in a kernel.
 */
typedef struct {
    GGAS_GLOBAL ggas_heap_t *heap;
    GGAS_GLOBAL ggas_u8 *parts; /* user bytes of PE 0 */
    ggas_u64 stride;
    ggas_u32 me;
    ggas_u32 count;
} ggas_t;

/* Makes a ggas_t from the kernel's argument. Every work-item calls it once. */
GGAS_FUNCTION ggas_t ggas_open(GGAS_GLOBAL ggas_heap_t *heap) {
    ggas_t g;
    g.heap = heap;
    g.parts = (GGAS_GLOBAL ggas_u8 *)heap + sizeof(ggas_heap_t) + GGAS_FLAGS_BYTES;
    g.stride = heap->stride;
    g.me = heap->me;
    /* A heap of another version counts as one without PEs. */
    g.count = heap->magic == GGAS_MAGIC && heap->version == GGAS_VERSION ? heap->count : 0;
    return g;
}

/* Returns the number of the calling kernel's PE, starting from 0. */
GGAS_FUNCTION ggas_u32 ggas_my_pe(ggas_t g) { return g.me; }

/* Returns the number of PEs; 0 if the version of the host's heap differs from this header's. */
GGAS_FUNCTION ggas_u32 ggas_n_pes(ggas_t g) { return g.count; }

/* Returns the number of user bytes of each part. */
GGAS_FUNCTION ggas_u64 ggas_bytes(ggas_t g) { return g.heap->bytes; }

GGAS_FUNCTION int ggas_raw_is_mapped(ggas_t g, ggas_u32 pe) {
    return g.heap->paths[pe] == GGAS_PATH_MAPPED;
}

/* Returns the address of a byte of a PE's part, or 0 if only the proxy reaches that PE. It is never
 * 0 for the calling PE. Loads through it are correct, but slow if devices have memory of their own.
 * Stores through it are ordered like puts. */
GGAS_FUNCTION GGAS_GLOBAL void *ggas_ptr(ggas_t g, ggas_u64 offset, ggas_u32 pe) {
    if (pe >= g.count || !ggas_raw_is_mapped(g, pe)) return 0;
    return (GGAS_GLOBAL void *)(g.parts + pe * g.stride + offset);
}

/* -------------------------------------------------------------------------------------------------
 * Waiting.
 */
GGAS_FUNCTION int ggas_raw_holds(ggas_u64 seen, int cmp, ggas_u64 value) {
    switch (cmp) {
    case GGAS_CMP_EQ: return seen == value;
    case GGAS_CMP_NE: return seen != value;
    case GGAS_CMP_GT: return seen > value;
    case GGAS_CMP_GE: return seen >= value;
    case GGAS_CMP_LT: return seen < value;
    default: return seen <= value;
    }
}

/* While the clock stands still, rounds are counted: a round takes at least 0.2 us, a nap 50 us. */
#define GGAS_NAP_ROUNDS 250

GGAS_FUNCTION int ggas_raw_wait(ggas_t g, ggas_word_t word, int cmp, ggas_u64 value) {
    if (ggas_raw_holds(ggas_raw_load(word), cmp, value)) return GGAS_OK;
    const ggas_u32 looks = g.heap->looks;
    /* The bound begins with the first observed change, because a busy host moves the clock late. */
    ggas_u64 began = ggas_raw_load(&g.heap->clock_ms);
    /* Rounds since the last observed change of the clock. */
    ggas_u64 rounds = 0, seen_ms = began;
    int moved = 0, crowded = 0;
    for (;;) {
        for (ggas_u32 look = 0; look < looks; look++)
            if (ggas_raw_holds(ggas_raw_load(word), cmp, value)) return GGAS_OK;
        if (ggas_raw_load(&g.heap->abort) != 0) /* A signal that came before the abort counts. */
            return ggas_raw_holds(ggas_raw_load(word), cmp, value) ? GGAS_OK : GGAS_ABORTED;
        const ggas_u64 now_ms = ggas_raw_load(&g.heap->clock_ms);
        if (now_ms != seen_ms) rounds = 0;
        if (now_ms != seen_ms && !moved++) began = now_ms;
        seen_ms = now_ms;
        if (now_ms - began >= g.heap->timeout_ms || rounds >= g.heap->rounds_max)
            return GGAS_TIMEOUT;
        const ggas_u64 gave_way = GGAS_CYCLES();
        if (crowded)
            GGAS_NAP();
        else
            GGAS_YIELD();
        /* A tenth of a millisecond at 2 GHz. */
        if (GGAS_CYCLES() - gave_way > 200000) crowded = 1;
        rounds += crowded ? GGAS_NAP_ROUNDS : 1;
    }
}

/* Waits until the comparison of the signal at `offset` of the own part with `value` holds. Returns
 * GGAS_OK, GGAS_TIMEOUT or GGAS_ABORTED. After GGAS_OK, what was put before the signal is visible
 * to the calling work-item, and to its work-group after a barrier(). */
GGAS_FUNCTION int ggas_wait_until(ggas_t g, ggas_u64 offset, int cmp, ggas_u64 value) {
    return ggas_raw_wait(g, (ggas_word_t)(g.parts + g.me * g.stride + offset), cmp, value);
}

/* The same for a work-group: all its work-items return the same status and see what was put.
 * `scratch` is one int of local memory. */
GGAS_FUNCTION int ggas_wait_until_wg(ggas_t g, ggas_u64 offset, int cmp, ggas_u64 value,
                                     GGAS_SHARED int *scratch) {
    if (ggas_raw_item() == 0) *scratch = ggas_wait_until(g, offset, cmp, value);
    GGAS_WG_BARRIER();
    int status = *scratch;
    GGAS_WG_BARRIER();
    return status;
}

/* Returns whether the comparison of the signal at `offset` of the own part with `value` holds now.
 * If it does, what was put before the signal is visible. */
GGAS_FUNCTION int ggas_test(ggas_t g, ggas_u64 offset, int cmp, ggas_u64 value) {
    return ggas_raw_holds(ggas_raw_load((ggas_word_t)(g.parts + g.me * g.stride + offset)), cmp,
                          value);
}

/* Returns whether the heap has been aborted, for a kernel's own loops that do not wait. */
GGAS_FUNCTION int ggas_aborted(ggas_t g) { return ggas_raw_load(&g.heap->abort) != 0; }

/* -------------------------------------------------------------------------------------------------
 * The ring: requests to the proxy. Any work-item posts entries; one thread of the host takes them.
 */
GGAS_FUNCTION int ggas_raw_failed(ggas_t g, int status) {
    if (status != GGAS_OK) *(volatile GGAS_GLOBAL int *)&g.heap->status = status;
    return status;
}

GGAS_FUNCTION int ggas_raw_post(ggas_t g, ggas_u32 kind, ggas_u32 pe, ggas_u64 target_at,
                                ggas_u64 value, ggas_u64 length, ggas_u64 signal_at,
                                ggas_u64 signal, ggas_word_t *taken, ggas_u64 *position) {
    for (;;) {
        const ggas_u64 at = ggas_raw_load(&g.heap->tail);
        GGAS_GLOBAL ggas_entry_t *entry = &g.heap->ring[at % GGAS_RING_ENTRIES];
        const ggas_u64 sequence = ggas_raw_load(&entry->sequence);
        if (sequence == at) {
            if (!ggas_raw_claim(&g.heap->tail, at, at + 1)) continue;
            entry->kind = kind;
            entry->pe = pe;
            entry->target_at = target_at;
            entry->value = value;
            entry->length = length;
            entry->signal_at = signal_at;
            entry->signal = signal;
            ggas_raw_store(&entry->sequence, at + 1);
            *taken = &entry->sequence;
            *position = at;
            return GGAS_OK;
        }
        if (sequence < at) {
            /* The ring is full: the entry of the previous round has not been taken. */
            const int status = ggas_raw_wait(g, &entry->sequence, GGAS_CMP_GE, at);
            if (status != GGAS_OK) return ggas_raw_failed(g, status);
        }
    }
}

/* Posts an entry. If `blocks`, waits until its bytes have been taken. Offsets count user bytes. */
GGAS_FUNCTION int ggas_raw_send(ggas_t g, ggas_u32 kind, ggas_u32 pe, ggas_u64 target,
                                ggas_u64 source, ggas_u64 length, ggas_u64 signal_offset,
                                ggas_u64 signal, int blocks) {
    ggas_word_t taken;
    ggas_u64 position;
    const ggas_u64 value = kind == GGAS_KIND_PUT ? source + GGAS_FLAGS_BYTES : source;
    const ggas_u64 signal_at =
        signal_offset == GGAS_NO_SIGNAL ? GGAS_NO_SIGNAL : signal_offset + GGAS_FLAGS_BYTES;
    int status = ggas_raw_post(g, kind, pe, target + GGAS_FLAGS_BYTES, value, length, signal_at,
                               signal, &taken, &position);
    if (status != GGAS_OK || !blocks) return status;
    return ggas_raw_failed(g, ggas_raw_wait(g, taken, GGAS_CMP_GE, position + 2));
}

/* -------------------------------------------------------------------------------------------------
 * Stores and puts.
 */

/* Stores a value at `offset` of a PE's part; `offset` is a multiple of the value's size. */
GGAS_FUNCTION int ggas_p32(ggas_t g, ggas_u64 offset, ggas_u32 value, ggas_u32 pe) {
    if (pe >= g.count) return GGAS_INVALID;
    if (!ggas_raw_is_mapped(g, pe))
        return ggas_raw_send(g, GGAS_KIND_STORE_32, pe, offset, value, 4, GGAS_NO_SIGNAL, 0, 0);
    *(volatile GGAS_GLOBAL ggas_u32 *)(g.parts + pe * g.stride + offset) = value;
    return GGAS_OK;
}
GGAS_FUNCTION int ggas_p64(ggas_t g, ggas_u64 offset, ggas_u64 value, ggas_u32 pe) {
    if (pe >= g.count) return GGAS_INVALID;
    if (!ggas_raw_is_mapped(g, pe))
        return ggas_raw_send(g, GGAS_KIND_STORE_64, pe, offset, value, 8, GGAS_NO_SIGNAL, 0, 0);
    *(volatile GGAS_GLOBAL ggas_u64 *)(g.parts + pe * g.stride + offset) = value;
    return GGAS_OK;
}

/* Sets the signal at `offset` of a PE's part after everything that the calling work-item put to
 * that PE. */
GGAS_FUNCTION int ggas_signal(ggas_t g, ggas_u64 offset, ggas_u64 value, ggas_u32 pe) {
    if (pe >= g.count) return GGAS_INVALID;
    if (!ggas_raw_is_mapped(g, pe))
        return ggas_raw_send(g, GGAS_KIND_PUT, pe, 0, 0, 0, offset, value, 0);
    ggas_raw_store((ggas_word_t)(g.parts + pe * g.stride + offset), value);
    return GGAS_OK;
}

/* Copies `bytes` bytes from `source` of the own part to `target` of a PE's part, then sets the
 * signal at `signal_offset` of that part; ggas_put sets no signal. On return the source may be
 * changed. The forms with _nbi return at once if a proxy sends: the source must then stay unchanged
 * until ggas_quiet. */
GGAS_FUNCTION int ggas_raw_put(ggas_t g, ggas_u64 target, ggas_u64 source, ggas_u64 bytes,
                               ggas_u64 signal_offset, ggas_u64 signal, ggas_u32 pe, int blocks) {
    if (pe >= g.count) return GGAS_INVALID;
    if (!ggas_raw_is_mapped(g, pe))
        return ggas_raw_send(g, GGAS_KIND_PUT, pe, target, source, bytes, signal_offset, signal,
                             blocks);
    ggas_raw_copy(g.parts + pe * g.stride + target, g.parts + g.me * g.stride + source, bytes);
    if (signal_offset != GGAS_NO_SIGNAL)
        ggas_raw_store((ggas_word_t)(g.parts + pe * g.stride + signal_offset), signal);
    return GGAS_OK;
}
GGAS_FUNCTION int ggas_put(ggas_t g, ggas_u64 target, ggas_u64 source, ggas_u64 bytes,
                           ggas_u32 pe) {
    return ggas_raw_put(g, target, source, bytes, GGAS_NO_SIGNAL, 0, pe, 1);
}
GGAS_FUNCTION int ggas_put_nbi(ggas_t g, ggas_u64 target, ggas_u64 source, ggas_u64 bytes,
                               ggas_u32 pe) {
    return ggas_raw_put(g, target, source, bytes, GGAS_NO_SIGNAL, 0, pe, 0);
}
GGAS_FUNCTION int ggas_put_signal(ggas_t g, ggas_u64 target, ggas_u64 source, ggas_u64 bytes,
                                  ggas_u64 signal_offset, ggas_u64 signal, ggas_u32 pe) {
    return ggas_raw_put(g, target, source, bytes, signal_offset, signal, pe, 1);
}
GGAS_FUNCTION int ggas_put_signal_nbi(ggas_t g, ggas_u64 target, ggas_u64 source, ggas_u64 bytes,
                                      ggas_u64 signal_offset, ggas_u64 signal, ggas_u32 pe) {
    return ggas_raw_put(g, target, source, bytes, signal_offset, signal, pe, 0);
}

/* The same by a work-group: its work-items copy together, and any of them may have written the
 * source. What any of them put to the same PE before is visible with the signal. After a failure of
 * the proxy, this call and all later ones return its status. */
GGAS_FUNCTION int ggas_raw_put_wg(ggas_t g, ggas_u64 target, ggas_u64 source, ggas_u64 bytes,
                                  ggas_u64 signal_offset, ggas_u64 signal, ggas_u32 pe,
                                  int blocks) {
    /* No barrier is in a branch: compilers for CPUs turn work-items into loops, and handle such
     * barriers badly. */
    const int there = pe < g.count;
    const int mapped = there && ggas_raw_is_mapped(g, pe);
    GGAS_WG_BARRIER();
    if (mapped)
        ggas_raw_copy_wg(g.parts + pe * g.stride + target, g.parts + g.me * g.stride + source,
                         bytes);
    GGAS_WG_BARRIER();
    if (ggas_raw_item() == 0 && there) {
        if (!mapped)
            ggas_raw_send(g, GGAS_KIND_PUT, pe, target, source, bytes, signal_offset, signal,
                          blocks);
        else if (signal_offset != GGAS_NO_SIGNAL)
            ggas_raw_store((ggas_word_t)(g.parts + pe * g.stride + signal_offset), signal);
    }
    GGAS_WG_BARRIER();
    return ggas_raw_agree(there ? *(volatile GGAS_GLOBAL int *)&g.heap->status : GGAS_INVALID);
}
GGAS_FUNCTION int ggas_put_wg(ggas_t g, ggas_u64 target, ggas_u64 source, ggas_u64 bytes,
                              ggas_u32 pe) {
    return ggas_raw_put_wg(g, target, source, bytes, GGAS_NO_SIGNAL, 0, pe, 1);
}
GGAS_FUNCTION int ggas_put_nbi_wg(ggas_t g, ggas_u64 target, ggas_u64 source, ggas_u64 bytes,
                                  ggas_u32 pe) {
    return ggas_raw_put_wg(g, target, source, bytes, GGAS_NO_SIGNAL, 0, pe, 0);
}
GGAS_FUNCTION int ggas_put_signal_wg(ggas_t g, ggas_u64 target, ggas_u64 source, ggas_u64 bytes,
                                     ggas_u64 signal_offset, ggas_u64 signal, ggas_u32 pe) {
    return ggas_raw_put_wg(g, target, source, bytes, signal_offset, signal, pe, 1);
}
GGAS_FUNCTION int ggas_put_signal_nbi_wg(ggas_t g, ggas_u64 target, ggas_u64 source, ggas_u64 bytes,
                                         ggas_u64 signal_offset, ggas_u64 signal, ggas_u32 pe) {
    return ggas_raw_put_wg(g, target, source, bytes, signal_offset, signal, pe, 0);
}

/* -------------------------------------------------------------------------------------------------
 * Order and completion.
 */

/* Orders later puts of the calling work-item to the PE after its earlier puts to that PE. */
GGAS_FUNCTION void ggas_fence(ggas_t g, ggas_u32 pe) {
    (void)g;
    (void)pe;
    /* The ring and the stream behind it keep their order. */
    ggas_raw_fence();
}

/* Returns whether all entries below a position of the ring are known to be complete, or are flags
 * of barriers, for which nothing waits. */
GGAS_FUNCTION int ggas_raw_is_complete(ggas_t g, ggas_u64 position) {
    return ggas_raw_load(&g.heap->done) >= position || ggas_raw_load(&g.heap->settled) >= position;
}

/* Waits until everything that the PE has put so far, to any PE, is in place and visible there.
 * Sources of _nbi forms may then be changed. Also keeps later loads of the calling work-item behind
 * its earlier stores. */
GGAS_FUNCTION int ggas_quiet(ggas_t g) {
    ggas_raw_fence_full(&g.heap->fences);
    if (ggas_raw_is_complete(g, ggas_raw_load(&g.heap->tail))) return GGAS_OK;
    ggas_word_t taken;
    ggas_u64 position;
    int status =
        ggas_raw_post(g, GGAS_KIND_QUIET, 0, 0, 0, 0, GGAS_NO_SIGNAL, 0, &taken, &position);
    if (status != GGAS_OK) return status;
    return ggas_raw_failed(g, ggas_raw_wait(g, &g.heap->done, GGAS_CMP_GT, position));
}

/* -------------------------------------------------------------------------------------------------
 * Teams and barriers.
 */

/* The `size` PEs `start`, `start + stride`, ... of a heap. */
typedef struct {
    ggas_u32 slot;
    ggas_u32 start;
    ggas_u32 stride;
    ggas_u32 size;
} ggas_team_t;

/* Returns the team of all PEs, which has slot 0. */
GGAS_FUNCTION ggas_team_t ggas_team_world(ggas_t g) {
    ggas_team_t team;
    team.slot = 0;
    team.start = 0;
    team.stride = 1;
    team.size = g.count;
    return team;
}

/* Returns a team of some PEs. All its PEs pass the same numbers; no communication is needed. Teams
 * with a common PE that are in use at the same time have different slots from 1 to GGAS_TEAM_SLOTS
 * - 1. Another team may use a slot later. A team with PEs that do not exist has size 0. */
GGAS_FUNCTION ggas_team_t ggas_team_split(ggas_t g, ggas_u32 slot, ggas_u32 start, ggas_u32 stride,
                                          ggas_u32 size) {
    ggas_team_t team;
    const ggas_u64 last = start + (ggas_u64)stride * (size - 1);
    team.slot = slot;
    team.start = start;
    team.stride = stride;
    team.size = slot < GGAS_TEAM_SLOTS && stride > 0 && size > 0 && last < g.count ? size : 0;
    return team;
}

/* Returns the calling PE's number in a team; -1 if the PE is not in the team. */
GGAS_FUNCTION int ggas_team_my_pe(ggas_t g, ggas_team_t team) {
    if (team.size == 0 || g.me < team.start || (g.me - team.start) % team.stride != 0) return -1;
    const ggas_u32 index = (g.me - team.start) / team.stride;
    return index < team.size ? (int)index : -1;
}

/* Returns the number of PEs of a team. */
GGAS_FUNCTION ggas_u32 ggas_team_n_pes(ggas_team_t team) { return team.size; }

/* Returns the number in the heap of a PE of a team. */
GGAS_FUNCTION ggas_u32 ggas_team_pe(ggas_team_t team, ggas_u32 index) {
    return team.start + index * team.stride;
}

/* Tells a PE that this one has come: writes the count of their meetings to this PE's line of that
 * PE's part. */
GGAS_FUNCTION int ggas_raw_tell(ggas_t g, ggas_u32 slot, ggas_u32 pe) {
    const ggas_u64 at = (slot * GGAS_PES_MAX + g.me) * GGAS_LINE_BYTES,
                   count = g.heap->met[slot][pe];
    ggas_word_t taken;
    ggas_u64 position;
    if (!ggas_raw_is_mapped(g, pe))
        return ggas_raw_post(g, GGAS_KIND_PUT, pe, 0, 0, 0, at, count, &taken, &position);
    ggas_raw_store((ggas_word_t)(g.parts + pe * g.stride + at - GGAS_FLAGS_BYTES), count);
    return GGAS_OK;
}

/* Waits until a PE has told the same count. */
GGAS_FUNCTION int ggas_raw_await(ggas_t g, ggas_u32 slot, ggas_u32 pe) {
    const ggas_u64 at = (slot * GGAS_PES_MAX + pe) * GGAS_LINE_BYTES;
    return ggas_raw_wait(g, (ggas_word_t)(g.parts + g.me * g.stride + at - GGAS_FLAGS_BYTES),
                         GGAS_CMP_GE, g.heap->met[slot][pe]);
}

/* Meets the other PEs with one work-item: each PE tells all others. Each pair counts its meetings,
 * so a slot can serve one team after another.
 *
 * (In log2(size) rounds, with fewer messages, teams of 5 to 12 PEs on two cores took longer,
 * because each round costs another turn of all threads.) */
GGAS_FUNCTION int ggas_raw_meet(ggas_t g, ggas_team_t team, ggas_u32 index) {
    const ggas_u64 before = ggas_raw_load(&g.heap->tail);
    const int complete = ggas_raw_is_complete(g, before);
    ggas_u64 behind = before;
    int status = GGAS_OK;
    for (ggas_u32 step = 1; step < team.size && status == GGAS_OK; step++) {
        const ggas_u32 pe = ggas_team_pe(team, (index + step) % team.size);
        g.heap->met[team.slot][pe]++;
        status = ggas_raw_tell(g, team.slot, pe);
        if (!ggas_raw_is_mapped(g, pe)) behind++;
    }
    /* Nothing waits for the arrival of flags. So the next barrier need not wait for the proxy,
     * unless another launch has posted in between. */
    if (complete && status == GGAS_OK && ggas_raw_load(&g.heap->tail) == behind)
        ggas_raw_store(&g.heap->settled, behind);
    for (ggas_u32 step = 1; step < team.size && status == GGAS_OK; step++)
        status = ggas_raw_await(g, team.slot, ggas_team_pe(team, (index + step) % team.size));
    return status;
}

GGAS_FUNCTION int ggas_raw_barrier(ggas_t g, ggas_team_t team, int completes) {
    const int index = ggas_team_my_pe(g, team);
    GGAS_GLOBAL ggas_meeting_t *meeting = &g.heap->teams[team.slot % GGAS_TEAM_SLOTS];
    volatile GGAS_GLOBAL int *result = &meeting->status;
    GGAS_WG_BARRIER();
    /* After a failure the count of work-groups is invalid, so nobody waits. */
    if (ggas_raw_item() == 0 && index >= 0 && *result == GGAS_OK) {
        const ggas_u64 epoch = ggas_raw_load(&meeting->epoch);
        int status = GGAS_OK;
        if (ggas_raw_groups() == 1 || ggas_raw_count(&meeting->arrived) + 1 == ggas_raw_groups()) {
            *(volatile GGAS_GLOBAL ggas_u32 *)&meeting->arrived = 0;
            if (completes) status = ggas_quiet(g);
            if (status == GGAS_OK) status = ggas_raw_meet(g, team, (ggas_u32)index);
            if (status != GGAS_OK) *result = status;
            ggas_raw_store(&meeting->epoch, epoch + 1);
        } else {
            status = ggas_raw_wait(g, &meeting->epoch, GGAS_CMP_NE, epoch);
            if (status != GGAS_OK) *result = status;
        }
    }
    GGAS_WG_BARRIER();
    return ggas_raw_agree(index >= 0 ? *result : GGAS_INVALID);
}

/* Waits until all PEs of the team have come and everything that they have put before is in place.
 * All work-items of all work-groups of their kernels call it. After a failure, this call and all
 * later ones of the slot return its status until the host resets the heap. */
GGAS_FUNCTION int ggas_barrier(ggas_t g, ggas_team_t team) { return ggas_raw_barrier(g, team, 1); }
GGAS_FUNCTION int ggas_barrier_all(ggas_t g) { return ggas_raw_barrier(g, ggas_team_world(g), 1); }

/* The same without a wait for the proxy: only what was put to the calling PE itself is guaranteed
 * to have arrived. */
GGAS_FUNCTION int ggas_sync(ggas_t g, ggas_team_t team) { return ggas_raw_barrier(g, team, 0); }
GGAS_FUNCTION int ggas_sync_all(ggas_t g) { return ggas_raw_barrier(g, ggas_team_world(g), 0); }

#endif /* GGAS_H */
