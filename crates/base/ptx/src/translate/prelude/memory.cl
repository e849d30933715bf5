//@ ps_fault
// Only the first fault is kept: code, address, line.
void ps_fault(__global uchar *control, uint code, ulong address, uint line) {
    if (atomic_cmpxchg((volatile __global uint *)control, 0u, code) == 0u) {
        *(__global a_ulong *)(control + 8) = address;
        *(__global a_uint *)(control + 16) = line;
    }
}
//@ ps_check
// The place of an address if the access is allowed, else 64 bytes that nobody needs.
__global uchar *ps_check(__global uchar *arena, ulong control, ulong address, uint bytes, uint line) {
    __global uchar *state = arena + (control - ARENA_BASE);
    ulong offset = address - ARENA_BASE;
    uint code = 0;
    if (offset >= ARENA_SIZE || offset + bytes > ARENA_SIZE) {
        code = 1;
    } else {
        __global const uchar *bits = arena + (*(__global const a_ulong *)(state + 160) - ARENA_BASE);
        ulong first = offset >> 8, last = (offset + bytes - 1) >> 8;
        if ((bits[first >> 3] >> (first & 7) & 1) == 0 || (bits[last >> 3] >> (last & 7) & 1) == 0) code = 1;
        else if (offset & (bytes - 1)) code = 2;
    }
    if (code == 0) return arena + offset;
    ps_fault(state, code, address, line);
    __global a_ulong *sink = (__global a_ulong *)(state + 192);
    for (uint i = 0; i < 8; i++) sink[i] = 0;
    return state + 192;
}
//@ ps_check_bytes
// The same for some bytes, at most 64, that need not be aligned.
__global uchar *ps_check_bytes(__global uchar *arena, ulong control, ulong address, uint bytes, uint line) {
    __global uchar *first = ps_check(arena, control, address, 1u, line);
    if (bytes > 1u) {
        __global uchar *last = ps_check(arena, control, address + (bytes - 1u), 1u, line);
        if (last - first != (long)bytes - 1) return arena + (control - ARENA_BASE) + 192;
    }
    return first;
}
//@ ps_nowhere
// For an access where no memory is.
__global uchar *ps_nowhere(__global uchar *control, ulong address, uint line) {
    ps_fault(control, 1u, address, line);
    __global a_ulong *sink = (__global a_ulong *)(control + 192);
    for (uint i = 0; i < 8; i++) sink[i] = 0;
    return control + 192;
}
//@ ps_fence
// What comes before it stays before, what comes behind it stays behind, also for threads of other blocks: OpenCL 1.2 has such a fence for
// the threads of a block only.
void ps_fence(void) {
    mem_fence(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);
#if __OPENCL_C_VERSION__ == 200 || __OPENCL_C_VERSION__ >= 300 && defined(__opencl_c_atomic_scope_device)
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE, memory_order_acq_rel, memory_scope_device);
#elif defined(__has_builtin)
#if __has_builtin(__atomic_thread_fence)
    __atomic_thread_fence(4);
#endif
#endif
}
//@ ps_fence_all
// The same, and loads behind it do not overtake stores before it.
void ps_fence_all(void) {
    mem_fence(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);
#if __OPENCL_C_VERSION__ == 200 || __OPENCL_C_VERSION__ >= 300 && defined(__opencl_c_atomic_scope_device) && defined(__opencl_c_atomic_order_seq_cst)
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE, memory_order_seq_cst, memory_scope_device);
#elif defined(__has_builtin)
#if __has_builtin(__atomic_thread_fence)
    __atomic_thread_fence(5);
#endif
#endif
}
//@ ps_bound
// An offset in shared or local memory if the access is allowed, else 0.
uint ps_bound(__global uchar *arena, ulong control, uint offset, uint bytes, uint limit, uint line) {
    if (offset <= limit && bytes <= limit - offset && (offset & (bytes - 1)) == 0) return offset;
    ps_fault(arena + (control - ARENA_BASE), offset <= limit && bytes <= limit - offset ? 2u : 1u, offset, line);
    return 0;
}
//@ ps_apart
// PoCL takes a branch that is the first thing behind a barrier for one that all threads of the block take alike, and asks one of them. This
// stands between, and cannot be left out.
#ifdef POCL_DEVICE_ADDRESS_BITS
#define ps_apart() __asm__ __volatile__("")
#else
#define ps_apart()
#endif
//@ ps_close
// A barrier that closes a branch on PoCL: closing.rs tells why. The assembly keeps the barrier
// where it is. It has a loop over the threads of its own, because loops with assembly become no
// vectors.
#ifdef POCL_DEVICE_ADDRESS_BITS
#define ps_close() \
    { barrier(CLK_LOCAL_MEM_FENCE); __asm__ __volatile__(""); barrier(CLK_LOCAL_MEM_FENCE); }
#else
#define ps_close()
#endif
//@ ps_scalar
// Intel's runtime for CPUs (2026.2) makes vectors of threads. It computes wrong values in a loop
// with barriers around a loop that threads leave one by one, as in a state machine. The hint asks
// for one thread at a time.
#ifdef cl_intel_vec_len_hint
#define ps_scalar __attribute__((intel_vec_len_hint(1)))
#else
#define ps_scalar
#endif
//@ ps_nanosleep
// Gives way to other threads of this core: what a loop waits for may have to run there. A sleep is for who has found that giving way takes
// long: the system wakes it some 50 us later. Where no way is known, waits last as long as the system lets a thread run.
#if defined(cl_intel_vec_len_hint) && defined(__SPIR64__)
// Intel's runtime for CPUs resolves what its process has.
int sched_yield(void);
int usleep(uint);
void ps_nanosleep(uint ns) {
    if (ns < 10000u) sched_yield();
    else usleep(1);
}
#elif defined(__linux__) && defined(__x86_64__)
void ps_nanosleep(uint ns) {
    long result, wanted[2] = {0, 1};
    if (ns < 10000u) __asm__ __volatile__("syscall" : "=a"(result) : "a"(24L) : "rcx", "r11", "memory");
    else __asm__ __volatile__("syscall" : "=a"(result) : "a"(35L), "D"(wanted), "S"(0L) : "rcx", "r11", "memory");
}
#elif defined(__linux__) && defined(__aarch64__)
void ps_nanosleep(uint ns) {
    __asm__ __volatile__("mov x8, #124\n\tsvc #0" : : : "x0", "x8", "memory");
}
#else
void ps_nanosleep(uint ns) { (void)ns; }
#endif
//@ ps_clock
#if defined(__has_builtin)
#if __has_builtin(__builtin_readcyclecounter)
#define PS_CYCLES
#endif
#endif
ulong ps_clock(__global uchar *control) {
#ifdef PS_CYCLES
    return __builtin_readcyclecounter();
#else
    return (ulong)atomic_inc((volatile __global uint *)(control + 64));
#endif
}
//@ ps_nanoseconds
// Nanoseconds of the clock that the system calls monotonic: all devices of a host have the same one. NVIDIA's compiler reads the register
// itself. Where no way is known, this is the clock that counts cycles.
#if defined(__NV_CL_C_VERSION)
ulong ps_nanoseconds(__global uchar *control) {
    ulong now;
    (void)control;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}
#elif defined(cl_intel_vec_len_hint) && defined(__SPIR64__)
// Intel's runtime for CPUs resolves what its process has.
int clock_gettime(int clock, long *time);
ulong ps_nanoseconds(__global uchar *control) {
    long time[2] = {0, 0};
    (void)control;
    clock_gettime(1, time);
    return (ulong)time[0] * 1000000000UL + (ulong)time[1];
}
#elif defined(__linux__) && defined(__x86_64__)
ulong ps_nanoseconds(__global uchar *control) {
    long result, time[2] = {0, 0};
    (void)control;
    __asm__ __volatile__("syscall" : "=a"(result) : "a"(228L), "D"(1L), "S"(time) : "rcx", "r11", "memory");
    return (ulong)time[0] * 1000000000UL + (ulong)time[1];
}
#elif defined(__linux__) && defined(__aarch64__)
ulong ps_nanoseconds(__global uchar *control) {
    long time[2] = {0, 0};
    (void)control;
    __asm__ __volatile__("mov x1, %0\n\tmov x0, #1\n\tmov x8, #113\n\tsvc #0" : : "r"(time) : "x0", "x1", "x8", "memory");
    return (ulong)time[0] * 1000000000UL + (ulong)time[1];
}
#else
ulong ps_nanoseconds(__global uchar *control) { return ps_clock(control); }
#endif
//@ ps_printf_slot
// Room for one record in the ring, its head filled in: sizes of record and arguments, address of the format. Nothing if it is full.
__global uchar *ps_printf_slot(__global uchar *control, __global uchar *ring, uint bytes, ulong form) {
    volatile __global uint *head = (volatile __global uint *)(control + 144);
    ulong size = *(__global a_ulong *)(control + 136);
    uint record = 16u + ((bytes + 7u) & ~7u), old = *head, seen;
    for (;;) {
        if ((ulong)old + record > size) {
            atomic_inc((volatile __global uint *)(control + 148));
            return 0;
        }
        seen = atomic_cmpxchg(head, old, old + record);
        if (seen == old) break;
        old = seen;
    }
    __global uchar *slot = ring + old;
    *(__global a_uint *)slot = record;
    *(__global a_uint *)(slot + 4) = bytes;
    *(__global a_ulong *)(slot + 8) = form;
    return slot + 16;
}
