/* Several threads in one process: they may call every function at the same time, except
 * clSetKernelArg on the same kernel. */
#include "harness.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 8

static const char *const source =
    "kernel void up(global uint *w, uint by) { w[get_global_id(0)] += by; }";

struct work {
    pthread_t thread;
    unsigned number;
    int failed;
    cl_program program;
};

#define TRY(call)                    \
    do {                             \
        if ((call) != CL_SUCCESS) {  \
            work->failed = __LINE__; \
            return NULL;             \
        }                            \
    } while (0)

static void *own_queue(void *argument) {
    enum { WORDS = 256 };
    struct work *work = argument;
    cl_int code;
    const size_t items = WORDS;
    cl_uint words[WORDS], back[WORDS], expected = 0;
    cl_command_queue own = clCreateCommandQueue(context, device, 0, &code);
    TRY(code);
    cl_kernel kernel = clCreateKernel(work->program, "up", &code);
    TRY(code);
    for (int round = 0; round < 100; round++) {
        cl_uint by = work->number + 1;
        memset(words, 0, sizeof words);
        cl_mem mem = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof words, NULL, &code);
        TRY(code);
        TRY(clEnqueueWriteBuffer(own, mem, CL_FALSE, 0, sizeof words, words, 0, NULL, NULL));
        TRY(clSetKernelArg(kernel, 0, sizeof mem, &mem));
        TRY(clSetKernelArg(kernel, 1, sizeof by, &by));
        for (int i = 0; i < 3; i++)
            TRY(clEnqueueNDRangeKernel(own, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
        TRY(clEnqueueReadBuffer(own, mem, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
        expected = 3 * by;
        for (int i = 0; i < WORDS; i++)
            if (back[i] != expected) work->failed = __LINE__;
        TRY(clReleaseMemObject(mem));
    }
    TRY(clReleaseKernel(kernel));
    TRY(clReleaseCommandQueue(own));
    return NULL;
}

static void run_threads(void *(*body)(void *), cl_program program, unsigned count,
                        unsigned first_number) {
    struct work work[count];
    for (unsigned i = 0; i < count; i++) {
        work[i] = (struct work){.number = first_number + i, .program = program};
        REQUIRE(pthread_create(&work[i].thread, NULL, body, &work[i]) == 0);
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_join(work[i].thread, NULL);
        if (work[i].failed)
            test_fail(__FILE__, __LINE__, "thread %u failed at line %d", i, work[i].failed);
    }
}

static void run_all(void *(*body)(void *), cl_program program) {
    run_threads(body, program, THREADS, 0);
}

TEST(own_queues) {
    cl_program program = build(context, source, NULL);
    run_all(own_queue, program);
    OK(clReleaseProgram(program));
}

static cl_mem shared_mem;

static void *shared_queue(void *argument) {
    struct work *work = argument;
    cl_uint back[4], mine[4];
    for (cl_uint round = 0; round < 200; round++) {
        const size_t at = work->number * sizeof mine;
        cl_event event;
        for (int i = 0; i < 4; i++) mine[i] = round * 100 + work->number;
        TRY(clEnqueueWriteBuffer(queue, shared_mem, CL_FALSE, at, sizeof mine, mine, 0, NULL,
                                 &event));
        TRY(clWaitForEvents(1, &event));
        TRY(clReleaseEvent(event));
        TRY(clEnqueueReadBuffer(queue, shared_mem, CL_TRUE, at, sizeof back, back, 0, NULL, NULL));
        if (memcmp(mine, back, sizeof mine) != 0) work->failed = __LINE__;
        if (round % 20 == 0) TRY(clFinish(queue));
    }
    return NULL;
}

TEST(one_queue) {
    shared_mem = make_buffer(context, 0, THREADS * 16, NULL);
    run_all(shared_queue, NULL);
    OK(clReleaseMemObject(shared_mem));
}

static void *own_context(void *argument) {
    struct work *work = argument;
    cl_int code;
    for (int round = 0; round < 10; round++) {
        unsigned char bytes[512], back[512];
        cl_context own = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
        TRY(code);
        cl_command_queue on = clCreateCommandQueue(own, device, 0, &code);
        TRY(code);
        cl_mem mem = clCreateBuffer(own, 0, 512, NULL, &code);
        TRY(code);
        pattern(bytes, 512, work->number);
        TRY(clEnqueueWriteBuffer(on, mem, CL_FALSE, 0, 512, bytes, 0, NULL, NULL));
        TRY(clEnqueueReadBuffer(on, mem, CL_TRUE, 0, 512, back, 0, NULL, NULL));
        if (memcmp(bytes, back, 512) != 0) work->failed = __LINE__;
        TRY(clReleaseMemObject(mem));
        TRY(clReleaseCommandQueue(on));
        TRY(clReleaseContext(own));
    }
    return NULL;
}

TEST(own_contexts) { run_all(own_context, NULL); }

static void *own_build(void *argument) {
    struct work *work = argument;
    char text[256];
    const char *pieces = text;
    cl_int code;
    snprintf(text, sizeof text, "kernel void up(global uint *w) { *w = %u; }", 1000 + work->number);
    cl_program program = clCreateProgramWithSource(context, 1, &pieces, NULL, &code);
    TRY(code);
    TRY(clBuildProgram(program, 0, NULL, NULL, NULL, NULL));
    cl_kernel kernel = clCreateKernel(program, "up", &code);
    TRY(code);
    cl_command_queue own = clCreateCommandQueue(context, device, 0, &code);
    TRY(code);
    cl_mem mem = clCreateBuffer(context, 0, 4, NULL, &code);
    TRY(code);
    const size_t one = 1;
    cl_uint back = 0;
    TRY(clSetKernelArg(kernel, 0, sizeof mem, &mem));
    TRY(clEnqueueNDRangeKernel(own, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    TRY(clEnqueueReadBuffer(own, mem, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
    if (back != 1000 + work->number) work->failed = __LINE__;
    TRY(clReleaseMemObject(mem));
    TRY(clReleaseCommandQueue(own));
    TRY(clReleaseKernel(kernel));
    TRY(clReleaseProgram(program));
    return NULL;
}

TEST(builds) { run_all(own_build, NULL); }

/* At most 16 builds of a process run at the same time, and the others wait for their turn. Each
 * build is a run of a compiler, so only the long lane gets the long line. */
static unsigned builds_count(void) {
    enum { LONG_LINE = 80, SHORT_LINE = 20 };
    const char *lane = getenv("TEST_LANE");
    return lane && strcmp(lane, "all") == 0 ? LONG_LINE : SHORT_LINE;
}

static pthread_barrier_t start;

static void *build_together(void *argument) {
    pthread_barrier_wait(&start);
    return own_build(argument);
}

TEST(many_builds_at_the_same_time) {
    unsigned count = builds_count();
    REQUIRE(pthread_barrier_init(&start, NULL, count) == 0);
    /* The numbers, and so the sources, are unique to this run: PoCL caches earlier builds. */
    run_threads(build_together, NULL, count, (unsigned)time(NULL) * count);
    pthread_barrier_destroy(&start);
}

/* Completes the event that another thread waits for. */
static void *completes(void *argument) {
    usleep(20000);
    clSetUserEventStatus(*(cl_event *)argument, CL_COMPLETE);
    return NULL;
}

TEST(wait_and_complete) {
    for (int round = 0; round < 5; round++) {
        pthread_t thread;
        cl_int code;
        cl_event gate = clCreateUserEvent(context, &code), marker;
        OK(code);
        OK(clEnqueueMarkerWithWaitList(queue, 1, &gate, &marker));
        pthread_create(&thread, NULL, completes, &gate);
        if (round % 2) OK(clFinish(queue));
        OK(clWaitForEvents(1, &marker));
        pthread_join(thread, NULL);
        OK(clReleaseEvent(gate));
        OK(clReleaseEvent(marker));
    }
}

/* The child of a fork has none of our threads and sockets: it gets an error and does not hang, and
 * the parent continues. */
TEST(fork_gives_the_child_an_error) {
    if (!on_penstock()) test_skip("a driver may hang here");
    unsigned char bytes[64] = {0};
    cl_mem mem = make_buffer(context, 0, 64, NULL);
    write_pattern(queue, mem, 64, 1);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(60);
        _exit(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, 64, bytes, 0, NULL, NULL) == CL_SUCCESS
                  ? 1
                  : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(read_pattern(queue, mem, 64, 1));
    OK(clReleaseMemObject(mem));
}
