/* A client that works until something goes wrong: load MODE [SECONDS [DEVICES [LENGTH]]].
 *
 * Says "busy" when it is in the middle of its work, "error CODE" at the first OpenCL error, "wrong"
 * if data is not what it must be. Ends with 0 (time is up or SIGTERM, all right), 3 (an OpenCL
 * error), 4 (wrong data). The variable LOAD_PAUSE_MS makes it rest after each turn of its work.
 *
 * Mode "idle": says "busy" and calls nothing more until the end.
 *
 * Mode "rate": says "rest" and sleeps until SIGUSR1 comes. Then it keeps the first DEVICES devices
 * busy with kernels of LENGTH times some 50 ms (1 and 1 if none are given), and says "kernel" when
 * one has ended. After SIGUSR2 it waits for the last ones and begins anew.
 *
 * Mode "spared": says "busy", waits for SIGTERM, enqueues commands of the first device that come
 * after transfers from the last one, says "enqueued", and ends with 0 only if all that does not
 * need the last device has run.
 *
 * Mode "fallback": says "busy" and waits for SIGTERM. After that the last device has no memory for
 * a large buffer. Its kernels must fail, and the first device must go on with the content from
 * before them.
 *
 * Mode "heap": kernels on all devices wait in a global buffer for what never comes. Says "aborted
 * DEVICE" when one has left because another one's worker is gone, "lost DEVICE" for a device that
 * is gone itself.
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <CL/cl_ext_penstock.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SIZE ((size_t)4 << 20)
#define SMALL ((size_t)4096)

static cl_device_id devices[8];
static cl_uint device_count;
static cl_context context;
static cl_command_queue queues[8];
static volatile sig_atomic_t stop;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static _Noreturn void end(int code, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
    fflush(stdout);
    /* Through exit(): the library's own end must work as well after a lost node. */
    exit(code);
}

#define CALL(call)                                                                 \
    do {                                                                           \
        cl_int call_code_ = (call);                                                \
        if (call_code_ != CL_SUCCESS) end(3, "error %d at %s", call_code_, #call); \
    } while (0)

static void busy(void) {
    static bool said;
    if (said) return;
    said = true;
    printf("busy\n");
    fflush(stdout);
}

static void on_term(int number) {
    (void)number;
    stop = 1;
}

static cl_mem buffer(size_t size) {
    cl_int code;
    cl_mem mem = clCreateBuffer(context, CL_MEM_READ_WRITE, size, NULL, &code);
    CALL(code);
    return mem;
}

static cl_kernel kernel_of(const char *source, const char *name) {
    cl_int code;
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    CALL(code);
    CALL(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    cl_kernel kernel = clCreateKernel(program, name, &code);
    CALL(code);
    CALL(clReleaseProgram(program));
    return kernel;
}

static const char *const add_source =
    "kernel void add(global uint *w, uint by) { w[get_global_id(0)] += by; }";
static const char *const spin_source =
    "kernel void spin(global float *w, uint n) { float x = *w; for (uint i = 0; i < n; i++) x = sin(x) + 1; *w = x; }";

/* A kernel that adds `by` to words of `mem`. */
static cl_kernel adder(cl_mem mem, cl_uint by) {
    cl_kernel kernel = kernel_of(add_source, "add");
    CALL(clSetKernelArg(kernel, 0, sizeof mem, &mem));
    CALL(clSetKernelArg(kernel, 1, sizeof by, &by));
    return kernel;
}

/* Large writes, never waited for one by one. */
static void transfers(cl_command_queue on) {
    static unsigned char bytes[SIZE];
    static cl_mem mem;
    if (!mem) mem = buffer(SIZE);
    for (int i = 0; i < 8; i++)
        CALL(clEnqueueWriteBuffer(on, mem, CL_FALSE, 0, SIZE, bytes, 0, NULL, NULL));
    busy();
    CALL(clFinish(on));
}

static void kernels(cl_command_queue on) {
    static cl_kernel kernel;
    static cl_mem mem;
    const size_t one = 1;
    const cl_uint n = 2000000;
    if (!kernel) {
        kernel = kernel_of(spin_source, "spin");
        mem = buffer(4);
        CALL(clSetKernelArg(kernel, 0, sizeof mem, &mem));
        CALL(clSetKernelArg(kernel, 1, sizeof n, &n));
    }
    for (int i = 0; i < 4; i++)
        CALL(clEnqueueNDRangeKernel(on, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    CALL(clFlush(on));
    busy();
    CALL(clFinish(on));
}

/* Sends and never waits: a worker that takes nothing leaves no room on the way to it. The kernel
 * comes first, because a write that waits for nothing is a copy into memory of both sides. */
static void fills(cl_command_queue on) {
    static unsigned char bytes[SIZE];
    static cl_kernel kernel;
    static cl_mem mem;
    const size_t items = SMALL / 4;
    if (!mem) {
        mem = buffer(SIZE);
        kernel = adder(mem, 1);
    }
    CALL(clEnqueueNDRangeKernel(on, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
    CALL(clEnqueueWriteBuffer(on, mem, CL_FALSE, 0, SIZE, bytes, 0, NULL, NULL));
    CALL(clFlush(on));
    busy();
}

static void reads(cl_command_queue on) {
    static unsigned char *bytes;
    static cl_mem mem;
    if (!bytes) {
        bytes = calloc(1, SIZE);
        mem = buffer(SIZE);
        CALL(clEnqueueWriteBuffer(on, mem, CL_TRUE, 0, SIZE, bytes, 0, NULL, NULL));
    }
    busy();
    memset(bytes, 1, SIZE);
    CALL(clEnqueueReadBuffer(on, mem, CL_TRUE, 0, SIZE, bytes, 0, NULL, NULL));
    if (bytes[0] != 0 || bytes[SIZE - 1] != 0) end(4, "wrong bytes");
}

static void maps(cl_command_queue on) {
    static cl_mem mem;
    cl_int code;
    if (!mem) mem = buffer(SIZE);
    unsigned char *at =
        clEnqueueMapBuffer(on, mem, CL_TRUE, CL_MAP_WRITE, 0, SIZE, 0, NULL, NULL, &code);
    CALL(code);
    busy();
    /* The node may end now: the pointer must stay good memory. */
    memset(at, 7, SIZE);
    CALL(clEnqueueUnmapMemObject(on, mem, at, 0, NULL, NULL));
    CALL(clFinish(on));
}

static void builds(void) {
    char source[256];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(source, sizeof source, "kernel void k(global ulong *w) { *w = %ld%09ldul; }",
             (long)now.tv_sec, now.tv_nsec);
    busy();
    CALL(clReleaseKernel(kernel_of(source, "k")));
}

/* Small work whose result is known: kernels count a buffer up, and every word is looked at. */
static void steady(cl_command_queue on) {
    static cl_kernel kernel;
    static cl_mem mem;
    static cl_uint words[SMALL / 4], expected;
    const size_t items = SMALL / 4;
    if (!kernel) {
        mem = buffer(SMALL);
        kernel = adder(mem, 3);
        CALL(clEnqueueWriteBuffer(on, mem, CL_TRUE, 0, SMALL, words, 0, NULL, NULL));
    }
    for (int i = 0; i < 5; i++)
        CALL(clEnqueueNDRangeKernel(on, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
    expected += 15;
    CALL(clEnqueueReadBuffer(on, mem, CL_TRUE, 0, SMALL, words, 0, NULL, NULL));
    for (size_t i = 0; i < items; i++)
        if (words[i] != expected) end(4, "wrong: word %zu is %u, not %u", i, words[i], expected);
    busy();
    usleep(1000);
}

/* One buffer that goes back and forth between all devices. */
static void both(int turn) {
    static cl_kernel kernel;
    static cl_mem mem;
    static cl_uint *words;
    const size_t items = SIZE / 4;
    if (!kernel) {
        mem = buffer(SIZE);
        kernel = adder(mem, 1);
        words = calloc(1, SIZE);
        CALL(clEnqueueWriteBuffer(queues[0], mem, CL_TRUE, 0, SIZE, words, 0, NULL, NULL));
    }
    cl_command_queue on = queues[turn % (int)device_count];
    CALL(clEnqueueNDRangeKernel(on, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
    CALL(clFinish(on));
    if (turn > 2) busy();
}

/* A buffer's way from one device to the other and back. What fails is told, and the next one tried.
 */
static int there_and_back(cl_kernel kernel) {
    enum { WORDS = 4096 };
    cl_uint words[WORDS], by = 1;
    const size_t items = WORDS;
    cl_int code;
    for (cl_uint i = 0; i < WORDS; i++) words[i] = i;
    cl_mem mem = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof words, NULL, &code);
    if (!code)
        code = clEnqueueWriteBuffer(queues[0], mem, CL_TRUE, 0, sizeof words, words, 0, NULL, NULL);
    if (!code) code = clSetKernelArg(kernel, 0, sizeof mem, &mem);
    if (!code) code = clSetKernelArg(kernel, 1, sizeof by, &by);
    if (!code)
        code = clEnqueueNDRangeKernel(queues[device_count - 1], kernel, 1, NULL, &items, NULL, 0,
                                      NULL, NULL);
    if (!code) code = clFinish(queues[device_count - 1]);
    if (!code)
        code = clEnqueueReadBuffer(queues[0], mem, CL_TRUE, 0, sizeof words, words, 0, NULL, NULL);
    for (cl_uint i = 0; !code && i < WORDS; i++)
        if (words[i] != i + 1) end(4, "wrong word %u: %u", i, words[i]);
    if (mem) CALL(clReleaseMemObject(mem));
    return code;
}

static void again(int turn) {
    static cl_kernel kernel;
    if (!kernel) kernel = kernel_of(add_source, "add");
    int code = there_and_back(kernel);
    if (code)
        printf("failed %d\n", code);
    else
        puts("right");
    fflush(stdout);
    if (turn > 2) busy();
    usleep(2000);
}

/* The first device's content moves to the last one for a copy whose event nobody has: the only call
 * that can tell of a failure of the way is the one that waits for the last queue. */
static void moving(int turn) {
    enum { MOVED = 32 << 20 };
    static cl_mem from, to;
    static unsigned char *back;
    cl_command_queue last = queues[device_count - 1];
    const unsigned char pattern = (unsigned char)(turn + 1);
    if (!from) {
        from = buffer(MOVED);
        to = buffer(MOVED);
        back = malloc(MOVED);
    }
    CALL(clEnqueueFillBuffer(queues[0], from, &pattern, 1, 0, MOVED, 0, NULL, NULL));
    CALL(clFinish(queues[0]));
    CALL(clEnqueueCopyBuffer(last, from, to, 0, 0, MOVED, 0, NULL, NULL));
    CALL(clFinish(last));
    CALL(clEnqueueReadBuffer(last, to, CL_TRUE, 0, MOVED, back, 0, NULL, NULL));
    for (size_t i = 0; i < MOVED; i++)
        if (back[i] != pattern) end(4, "wrong: byte %zu is %u in turn %d", i, back[i], turn);
    if (turn > 1) busy();
}

/* A blocking write that has returned fails later, because the last device, which has the rest of
 * its grain, is lost; and so does a transfer of content that is written over on the first device.
 * Commands of the first device come after both, and run. */
static void spared(void) {
    enum { WORDS = 1 << 20 };
    const size_t bytes = WORDS * sizeof(cl_uint), items = WORDS;
    cl_uint *words = calloc(WORDS, sizeof *words), one = 1;
    cl_command_queue first = queues[0], last = queues[device_count - 1];
    cl_int code;
    cl_command_queue second = clCreateCommandQueue(context, devices[0], 0, &code);
    CALL(code);
    cl_kernel add = kernel_of(add_source, "add");
    cl_mem there = buffer(bytes), moving = buffer(bytes), here = buffer(bytes);
    CALL(clSetKernelArg(add, 1, sizeof one, &one));
    CALL(clEnqueueWriteBuffer(last, there, CL_TRUE, 0, bytes, words, 0, NULL, NULL));
    CALL(clEnqueueWriteBuffer(last, moving, CL_TRUE, 0, bytes, words, 0, NULL, NULL));
    CALL(clEnqueueWriteBuffer(second, here, CL_TRUE, 0, bytes, words, 0, NULL, NULL));
    CALL(clSetKernelArg(add, 0, sizeof here, &here));
    CALL(clEnqueueNDRangeKernel(second, add, 1, NULL, &items, NULL, 0, NULL, NULL));
    CALL(clFinish(second));
    CALL(clFinish(last));
    busy();
    while (!stop) usleep(1000);
    CALL(clEnqueueWriteBuffer(first, there, CL_TRUE, 4, 4, &one, 0, NULL, NULL));
    CALL(clEnqueueNDRangeKernel(second, add, 1, NULL, &items, NULL, 0, NULL, NULL));
    CALL(clEnqueueReadBuffer(first, moving, CL_FALSE, 0, bytes, calloc(1, bytes), 0, NULL, NULL));
    CALL(clFlush(first));
    for (cl_uint i = 0; i < WORDS; i++) words[i] = 77;
    CALL(clEnqueueWriteBuffer(second, moving, CL_TRUE, 0, bytes, words, 0, NULL, NULL));
    CALL(clFlush(second));
    puts("enqueued");
    fflush(stdout);
    CALL(clFinish(second));
    CALL(clEnqueueReadBuffer(second, here, CL_TRUE, 0, bytes, words, 0, NULL, NULL));
    for (cl_uint i = 0; i < WORDS; i++)
        if (words[i] != 2) end(4, "wrong: word %u is %u after two launches", i, words[i]);
    CALL(clEnqueueReadBuffer(second, moving, CL_TRUE, 0, bytes, words, 0, NULL, NULL));
    for (cl_uint i = 0; i < WORDS; i++)
        if (words[i] != 77) end(4, "wrong: word %u is %u and not what was written", i, words[i]);
    end(0, "done");
}

static const char *const wait_source =
    "#include <ggas.h>\n"
    "kernel void wait_long(global ggas_heap_t *heap) {\n"
    "    ggas_t g = ggas_open(heap);\n"
    "    global long *result = (global long *)ggas_ptr(g, 4096, ggas_my_pe(g));\n"
    "    int status = ggas_barrier_all(g);\n"
    "    result[0] = status == GGAS_OK ? 1 : status;\n"
    "    if (status == GGAS_OK) result[1] = ggas_wait_until(g, 0, GGAS_CMP_GE, 1);\n"
    "}\n";

/* The last device refuses a kernel that adds to all words of a buffer, alone or while a kernel of
 * the first device waits for it. The code must be one that tells of missing memory. On PoCL 3.1 the
 * worker crashes if a second kernel uses such a buffer there. */
static void refused(cl_kernel kernel, cl_mem mem, size_t words, bool is_awaited) {
    const cl_uint by = 1, last = device_count - 1;
    cl_event event, other = NULL;
    CALL(clSetKernelArg(kernel, 0, sizeof mem, &mem));
    CALL(clSetKernelArg(kernel, 1, sizeof by, &by));
    CALL(clEnqueueNDRangeKernel(queues[last], kernel, 1, NULL, &words, NULL, 0, NULL, &event));
    if (is_awaited) {
        const size_t one = 1;
        CALL(clEnqueueNDRangeKernel(queues[0], kernel, 1, NULL, &one, NULL, 1, &event, &other));
        if (clWaitForEvents(1, &other) == CL_SUCCESS)
            end(4, "wrong: a kernel ran behind one that failed");
        CALL(clReleaseEvent(other));
    }
    cl_int status;
    if (clWaitForEvents(1, &event) == CL_SUCCESS)
        end(4, "wrong: a device without memory ran a kernel");
    CALL(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    if (status != CL_OUT_OF_HOST_MEMORY && status != CL_OUT_OF_RESOURCES &&
        status != CL_MEM_OBJECT_ALLOCATION_FAILURE)
        end(4, "wrong: the kernel failed with %d", status);
    CALL(clReleaseEvent(event));
    CALL(clFinish(queues[last]));
}

static _Noreturn void fallback(void) {
    /* SPARE_BYTES in cases.py says why as large. */
    enum { BYTES = 320 << 20 };
    const size_t words = BYTES / sizeof(cl_uint), few = 1024;
    cl_mem small = buffer(SMALL);
    cl_kernel kernel = adder(small, 1);
    for (cl_uint d = 0; d < device_count; d++) {
        CALL(clEnqueueNDRangeKernel(queues[d], kernel, 1, NULL, &few, NULL, 0, NULL, NULL));
        CALL(clFinish(queues[d]));
    }
    busy();
    while (!stop) usleep(1000);
    cl_uint *bytes = malloc(BYTES), back[2];
    for (size_t i = 0; i < words; i++) bytes[i] = (cl_uint)i;
    for (int turn = 0; turn < 3; turn++) {
        /* Where another kernel asked for what the refused one was to write, content that a device
         * has written may be lost. */
        const bool is_given = turn != 1, is_awaited = turn == 2;
        cl_int code;
        cl_mem mem = clCreateBuffer(context, is_given ? CL_MEM_COPY_HOST_PTR : 0, BYTES,
                                    is_given ? bytes : NULL, &code);
        CALL(code);
        if (!is_given)
            CALL(clEnqueueWriteBuffer(queues[0], mem, CL_TRUE, 0, BYTES, bytes, 0, NULL, NULL));
        refused(kernel, mem, words, is_awaited);
        CALL(clEnqueueNDRangeKernel(queues[0], kernel, 1, NULL, &words, NULL, 0, NULL, NULL));
        for (int at = 0; at < 2; at++) {
            const size_t offset = at ? BYTES - sizeof *back : 0;
            CALL(clEnqueueReadBuffer(queues[0], mem, CL_TRUE, offset, sizeof *back, &back[at], 0,
                                     NULL, NULL));
            if (back[at] != bytes[offset / sizeof *back] + 1)
                end(4, "wrong: turn %d gave %u", turn, back[at]);
        }
        CALL(clReleaseMemObject(mem));
        CALL(clFinish(queues[0]));
    }
    end(0, "done");
}

/* The kernels have met, and wait: a second queue looks, because the first one has the kernel. */
static void have_met(cl_mem heap) {
    for (cl_uint d = 0; d < device_count; d++) {
        cl_int code;
        cl_long met = 0;
        cl_command_queue look = clCreateCommandQueue(context, devices[d], 0, &code);
        CALL(code);
        while (met == 0)
            CALL(clEnqueueReadBuffer(look, heap, CL_TRUE, 4096, sizeof met, &met, 0, NULL, NULL));
        if (met != 1) end(4, "wrong: the kernels met with %ld", (long)met);
        CALL(clReleaseCommandQueue(look));
    }
}

static void heap_of_all(cl_platform_id platform) {
    struct penstock_global_buffer_functions heaps;
    const cl_ulong properties[] = {CL_GLOBAL_BUFFER_TIMEOUT_MS_PENSTOCK, 300000, 0};
    const size_t one = 1;
    cl_event events[8];
    cl_int code;
    bool is_over[8] = {false};
    CALL(penstock_find_global_buffer_functions(platform, &heaps));
    cl_mem heap = heaps.create(context, device_count, devices, 65536, properties, &code);
    CALL(code);
    cl_kernel kernel = kernel_of(wait_source, "wait_long");
    CALL(clSetKernelArg(kernel, 0, sizeof heap, &heap));
    CALL(heaps.launch(heap, device_count, queues, kernel, 1, NULL, &one, &one, 0, NULL, events));
    have_met(heap);
    busy();
    /* In the order in which they end. */
    for (cl_uint left = device_count; left > 0;) {
        for (cl_uint d = 0; d < device_count; d++) {
            cl_int status = CL_QUEUED;
            cl_long result = 0;
            if (is_over[d]) continue;
            CALL(clGetEventInfo(events[d], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status,
                                &status, NULL));
            if (status > CL_COMPLETE) continue;
            is_over[d] = true;
            left--;
            if (status < 0) {
                printf("lost %u\n", d);
            } else {
                CALL(clEnqueueReadBuffer(queues[d], heap, CL_TRUE, 4104, sizeof result, &result, 0,
                                         NULL, NULL));
                if (result != -2) end(4, "wrong: device %u left with %ld", d, (long)result);
                printf("aborted %u\n", d);
            }
            fflush(stdout);
        }
        usleep(500);
    }
    char reason[1100];
    CALL(heaps.info(heap, CL_GLOBAL_BUFFER_REASON_PENSTOCK, sizeof reason, reason, NULL));
    printf("reason: %s\n", reason);
    if (!reason[0]) end(4, "wrong: no reason");
    if (heaps.reset(heap) != CL_INVALID_OPERATION && heaps.reset(heap) != CL_DEVICE_NOT_AVAILABLE)
        end(4, "wrong: a heap without one of its members was reset");
    CALL(clReleaseMemObject(heap));
    end(0, "done");
}

/* The kernels of mode "rate", which use one core each. */
static cl_event running[8];

static void await_kernel(cl_uint d) {
    if (!running[d]) return;
    CALL(clWaitForEvents(1, &running[d]));
    CALL(clReleaseEvent(running[d]));
    running[d] = NULL;
    printf("kernel\n");
    fflush(stdout);
}

/* Two kernels are always enqueued on a device. */
static void rate(cl_uint used, cl_uint length) {
    static cl_kernel kernel[8];
    static cl_mem mem[8];
    const size_t one = 1;
    const cl_uint n = 1500000 * length;
    for (cl_uint d = 0; d < used; d++) {
        cl_event next;
        if (!kernel[d]) {
            kernel[d] = kernel_of(spin_source, "spin");
            mem[d] = buffer(4);
            CALL(clSetKernelArg(kernel[d], 0, sizeof mem[d], &mem[d]));
            CALL(clSetKernelArg(kernel[d], 1, sizeof n, &n));
        }
        CALL(clEnqueueNDRangeKernel(queues[d], kernel[d], 1, NULL, &one, NULL, 0, NULL, &next));
        CALL(clFlush(queues[d]));
        await_kernel(d);
        running[d] = next;
    }
}

/* The signals that mode "rate" obeys. They are blocked in all threads, so none of them is lost. */
static sigset_t orders;

static void block_orders(void) {
    sigemptyset(&orders);
    sigaddset(&orders, SIGUSR1);
    sigaddset(&orders, SIGUSR2);
    sigaddset(&orders, SIGTERM);
    sigprocmask(SIG_BLOCK, &orders, NULL);
}

static void rate_in_turns(cl_uint used, cl_uint length) {
    static bool works;
    const struct timespec at_once = {0, 0};
    if (!works) {
        /* The kernel is compiled before the first rest. */
        if (!running[0]) rate(used, length);
        for (cl_uint d = 0; d < used; d++) await_kernel(d);
        printf("rest\n");
        fflush(stdout);
    }
    const int order = works ? sigtimedwait(&orders, NULL, &at_once) : sigwaitinfo(&orders, NULL);
    if (order == SIGTERM) stop = 1;
    if (order == SIGUSR1) works = true;
    if (order == SIGUSR2) works = false;
    if (works && !stop) rate(used, length);
}

static void idle(cl_command_queue on) {
    static bool begun;
    if (!begun) steady(on);
    begun = true;
    busy();
    usleep(100000);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "check";
    const double limit_s = argc > 2 ? atof(argv[2]) : strcmp(mode, "check") == 0 ? 0 : 60;
    const cl_uint used = argc > 3 ? (cl_uint)atoi(argv[3]) : 1;
    const cl_uint length = argc > 4 ? (cl_uint)atoi(argv[4]) : 1;
    cl_platform_id platform;
    cl_int code;
    signal(SIGTERM, on_term);
    if (strcmp(mode, "rate") == 0) block_orders();
    CALL(clGetPlatformIDs(1, &platform, NULL));
    CALL(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 8, devices, &device_count));
    if (device_count > 8) device_count = 8;
    context = clCreateContext(NULL, device_count, devices, NULL, NULL, &code);
    CALL(code);
    for (cl_uint d = 0; d < device_count; d++) {
        queues[d] = clCreateCommandQueue(context, devices[d], 0, &code);
        CALL(code);
    }
    if (strcmp(mode, "heap") == 0) heap_of_all(platform);
    if (strcmp(mode, "spared") == 0) spared();
    if (strcmp(mode, "fallback") == 0) fallback();
    const double start_s = seconds();
    const char *pause_ms = getenv("LOAD_PAUSE_MS");
    int turn = 0;
    do {
        if (strcmp(mode, "transfers") == 0)
            transfers(queues[0]);
        else if (strcmp(mode, "kernels") == 0)
            kernels(queues[0]);
        else if (strcmp(mode, "reads") == 0)
            reads(queues[0]);
        else if (strcmp(mode, "maps") == 0)
            maps(queues[0]);
        else if (strcmp(mode, "builds") == 0)
            builds();
        else if (strcmp(mode, "fills") == 0)
            fills(queues[0]);
        else if (strcmp(mode, "both") == 0)
            both(turn);
        else if (strcmp(mode, "again") == 0)
            again(turn);
        else if (strcmp(mode, "rate") == 0)
            rate_in_turns(used < device_count ? used : device_count, length);
        else if (strcmp(mode, "idle") == 0)
            idle(queues[0]);
        else if (strcmp(mode, "moving") == 0)
            moving(turn);
        else
            steady(queues[0]);
        if (pause_ms) usleep((useconds_t)atoi(pause_ms) * 1000);
        turn++;
    } while (!stop && seconds() - start_s < limit_s);
    end(0, "done %d", turn);
}
