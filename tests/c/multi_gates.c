/* Commands that a user event holds back and commands that are refused, beside commands of another
 * device. The order in which commands run counts, and not the order in which they are enqueued. */
#include "harness.h"

#include <signal.h>
#include <unistd.h>

#define DEVICES 2
#define LARGE_MAX 64

static cl_context both;
static cl_command_queue on[DEVICES];

static void need_two(void) {
    if (device_count < DEVICES) test_skip("one device only");
    if (both) return;
    both = make_context(DEVICES, devices);
    for (int d = 0; d < DEVICES; d++) on[d] = make_queue(both, devices[d], 0);
}

/* A case that hangs fails by itself, and no later case can run. */
static void hangs(int signal_number) {
    static const char words[] = "    the case hangs\n";
    (void)signal_number;
    if (write(STDOUT_FILENO, words, sizeof words - 1) < 0) _exit(2);
    _exit(1);
}

static void must_not_hang(void) {
    signal(SIGALRM, hangs);
    alarm(60);
}

static cl_uint read_one(int d, cl_mem mem, cl_uint wait_count, const cl_event *waits) {
    cl_uint got = 99;
    OK(clEnqueueReadBuffer(on[d], mem, CL_TRUE, 0, 4, &got, wait_count, waits, NULL));
    return got;
}

static cl_mem zero_in_both(void) {
    cl_uint zero = 0;
    return make_buffer(both, CL_MEM_COPY_HOST_PTR, 4, &zero);
}

/* Enqueues a launch that is refused when it runs, because its arguments need more memory than there
 * is. Returns false if this platform cannot be made to refuse it late. No command writes to the
 * large buffers, so they take no memory. */
static bool launch_refused(int d, cl_mem written, cl_mem *large, int *count) {
    const cl_ulong each = device_ulong(devices[d], CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    cl_ulong all = (cl_ulong)sysconf(_SC_PHYS_PAGES) * (cl_ulong)sysconf(_SC_PAGESIZE);
    cl_int code = CL_SUCCESS;
    for (cl_uint i = 0; i < device_count; i++)
        all += device_ulong(devices[i], CL_DEVICE_GLOBAL_MEM_SIZE);
    if (on_pocl() || each == 0 || all / each + 2 > LARGE_MAX) return false;
    for (cl_ulong sum = 0; sum <= all && code == CL_SUCCESS; sum += each) {
        large[*count] = clCreateBuffer(both, 0, (size_t)each, NULL, &code);
        *count += code == CL_SUCCESS;
    }
    if (code != CL_SUCCESS) return false;
    char source[LARGE_MAX * 24 + 64];
    size_t length = (size_t)snprintf(source, sizeof source, "kernel void bad(global uint *x");
    for (int i = 0; i < *count; i++)
        length +=
            (size_t)snprintf(source + length, sizeof source - length, ", global uint *y%d", i);
    snprintf(source + length, sizeof source - length, ") { x[0] = 8; }");
    const size_t one = 1;
    cl_kernel kernel = kernel_from(both, source, "bad");
    set_mem(kernel, 0, written);
    for (int i = 0; i < *count; i++) set_mem(kernel, 1 + (cl_uint)i, large[i]);
    code = clEnqueueNDRangeKernel(on[d], kernel, 1, NULL, &one, NULL, 0, NULL, NULL);
    OK(clReleaseKernel(kernel));
    return code == CL_SUCCESS;
}

/* A slow writer, followed by a refused launch in the same queue. Another device reads the writer's
 * result, and waits for its event. */
TEST(a_refused_launch_hides_no_writer) {
    need_two();
    cl_mem large[LARGE_MAX], mem = zero_in_both();
    const cl_uint one = 1;
    cl_event written;
    int count = 0;
    cl_kernel slow = kernel_from(
        both,
        "kernel void slow(global uint *a, uint n) { uint x = n; for (uint i = 0; i < 100000000u; i++)"
        " x = x * 1664525u + (i ^ (x >> 7)); a[0] = x == 0x12345678u ? 41u : 42u; }",
        "slow");
    set_mem(slow, 0, mem);
    OK(clSetKernelArg(slow, 1, sizeof one, &one));
    must_not_hang();
    const size_t items = 1;
    OK(clEnqueueNDRangeKernel(on[0], slow, 1, NULL, &items, NULL, 0, NULL, &written));
    bool refused = launch_refused(0, mem, large, &count);
    OK(clFlush(on[0]));
    CHECK(read_one(1, mem, 1, &written) == 42);
    if (refused) CHECK(clFinish(on[0]) != CL_SUCCESS);
    alarm(0);
    for (int i = 0; i < count; i++) OK(clReleaseMemObject(large[i]));
    OK(clReleaseEvent(written));
    OK(clReleaseKernel(slow));
    OK(clReleaseMemObject(mem));
    if (!refused) test_note("this platform refuses no launch late");
}

/* The reader is enqueued first and held back. The writer on the other device ends before the gate
 * opens. */
static void reader_behind_a_gate(const char *pointer) {
    need_two();
    char source[512];
    snprintf(source, sizeof source,
             "kernel void put(global uint *x) { x[0] = 42; }"
             "kernel void get(global %s *x, global uint *o) { o[0] = x[0]; }",
             pointer);
    cl_program program = build(both, source, NULL);
    for (int d = 0; d < DEVICES; d++) {
        cl_kernel put = make_kernel(program, "put"), get = make_kernel(program, "get");
        cl_mem x = zero_in_both(), o = make_buffer(both, 0, 4, NULL);
        cl_event gate = make_user_event(both);
        const size_t one = 1;
        set_mem(get, 0, x);
        set_mem(get, 1, o);
        set_mem(put, 0, x);
        must_not_hang();
        OK(clEnqueueNDRangeKernel(on[1 - d], get, 1, NULL, &one, NULL, 1, &gate, NULL));
        OK(clFlush(on[1 - d]));
        OK(clEnqueueNDRangeKernel(on[d], put, 1, NULL, &one, NULL, 0, NULL, NULL));
        OK(clFinish(on[d]));
        OK(clSetUserEventStatus(gate, CL_COMPLETE));
        CHECK(read_one(1 - d, o, 0, NULL) == 42);
        alarm(0);
        OK(clReleaseEvent(gate));
        OK(clReleaseKernel(put));
        OK(clReleaseKernel(get));
        OK(clReleaseMemObject(x));
        OK(clReleaseMemObject(o));
    }
    OK(clReleaseProgram(program));
}

TEST(a_held_reader_sees_what_was_written_before_the_gate_opened) {
    reader_behind_a_gate("const uint");
}

/* A read into host memory that is held back. */
TEST(a_held_read_sees_what_was_written_before_the_gate_opened) {
    need_two();
    for (int d = 0; d < DEVICES; d++) {
        cl_mem x = zero_in_both();
        cl_event gate = make_user_event(both), read;
        cl_uint got = 99;
        const cl_uint value = 42;
        must_not_hang();
        OK(clEnqueueReadBuffer(on[1 - d], x, CL_FALSE, 0, 4, &got, 1, &gate, &read));
        OK(clFlush(on[1 - d]));
        OK(clEnqueueFillBuffer(on[d], x, &value, 4, 0, 4, 0, NULL, NULL));
        OK(clFinish(on[d]));
        OK(clSetUserEventStatus(gate, CL_COMPLETE));
        OK(clWaitForEvents(1, &read));
        alarm(0);
        CHECK(got == 42);
        OK(clReleaseEvent(gate));
        OK(clReleaseEvent(read));
        OK(clReleaseMemObject(x));
    }
}

/* The same, but the held kernel does not declare that it only reads. This is the last case, because
 * a hang ends the program. */
TEST(a_held_kernel_does_not_stop_the_other_device) { reader_behind_a_gate("uint"); }
