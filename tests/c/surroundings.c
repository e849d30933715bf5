/* A program with closed standard files, blocked and ignored signals, and a limit of file sizes. */
#include "harness.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

/* Kept copies of standard output and standard error. */
static int kept[3];
static struct rlimit kept_limit;
static sigset_t kept_signals;

/* Runs before `main`, and so before any driver is loaded. */
__attribute__((constructor(200))) static void leave_surroundings(void) {
    for (int file = 0; file < 3; file++) {
        kept[file] = fcntl(file, F_DUPFD_CLOEXEC, 100);
        close(file);
    }
    getrlimit(RLIMIT_FSIZE, &kept_limit);
    const struct rlimit small = {.rlim_cur = 64 << 10, .rlim_max = kept_limit.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    signal(SIGCHLD, SIG_IGN);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &kept_signals);
}

static void come_back(void) {
    for (int file = 0; file < 3; file++)
        if (kept[file] >= 0) dup2(kept[file], file);
    setrlimit(RLIMIT_FSIZE, &kept_limit);
    sigprocmask(SIG_SETMASK, &kept_signals, NULL);
}

TEST(a_library_bears_what_a_program_was_started_with) {
    /* PoCL's compiler writes files that are longer. */
    if (on_pocl()) {
        come_back();
        test_skip("it is about a pool's library");
    }
    int taken = 0, value = 0;
    for (int file = 0; file < 3; file++) taken += fcntl(file, F_GETFD) >= 0;
    cl_kernel kernel = kernel_from(context, "kernel void inc(global int *a) { a[0] += 1; }", "inc");
    cl_int code;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof value, &value, &code);
    const size_t one = 1;
    if (code == CL_SUCCESS) clSetKernelArg(kernel, 0, sizeof buffer, &buffer);
    static const char junk[] = "what the program prints goes nowhere\n";
    for (int round = 0; round < 50; round++) {
        code |= clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL);
        for (int file = 0; file < 3; file++) (void)!write(file, junk, sizeof junk - 1);
    }
    code |= clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL);
    /* Only now can a failure be told. */
    come_back();
    OK(code);
    CHECK(taken == 0);
    CHECK(value == 50);
    OK(clReleaseMemObject(buffer));
    OK(clReleaseKernel(kernel));
}
