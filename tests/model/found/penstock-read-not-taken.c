/* hang: clFinish of one node never returns, because nobody takes the bytes of a read from the other node.
 *
 * Device 0 and device 1 are on two nodes of a Penstock pool. An in-order queue of device 0 has a non-blocking read
 * that is larger than the link's ring (4 MiB), and behind it a fill with an event. A fill on device 1 waits for that
 * event. The program flushes the first queue and calls clFinish for the second one. The worker of device 0 holds its
 * fill back until the bytes of the read are on the link (`Queue::pass_gate` in daemon/src/session/queue.rs), and the
 * link takes no more of them until the client receives. The client only receives from the node that it waits for, and
 * that node waits for the event.
 *
 * Found by penstock-check with injected delays on two nodes (seed 552 of the feature set of November 2026, 46 operations
 * left), and made smaller by hand. The hang needs no delays.
 *
 * cc -O1 NAME.c -lOpenCL; ./a.out [TIMES [PART OF THE PLATFORM'S NAME]]
 * Exit status: 0 right in all runs, 1 wrong (the program hangs for 10 seconds), 2 cannot be tried here. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGE = 16 << 20, SMALL = 4096 };

#define CODE(call) do { cl_int c_ = (call); if (c_ != CL_SUCCESS) { printf("WRONG: %s = %d\n", #call, c_); exit(1); } } while (0)
#define SETUP(call) do { cl_int c_ = (call); if (c_ != CL_SUCCESS) { printf("%s = %d\n", #call, c_); exit(2); } } while (0)

static void hangs(int number) {
    (void)number;
    static const char text[] = "WRONG: the program hangs\n";
    _exit(write(1, text, sizeof text - 1) < 0 ? 2 : 1);
}

int main(int argc, char **argv) {
    int times = argc > 1 ? atoi(argv[1]) : 20;
    const char *wanted = argc > 2 ? argv[2] : "";
    cl_platform_id all[16], chosen = NULL;
    cl_device_id devices[16];
    cl_uint count = 0;
    cl_int rc;
    SETUP(clGetPlatformIDs(16, all, &count));
    for (cl_uint i = 0; i < count && chosen == NULL; i++) {
        char name[256] = "";
        clGetPlatformInfo(all[i], CL_PLATFORM_NAME, sizeof name - 1, name, NULL);
        if (strstr(name, wanted) != NULL) chosen = all[i];
    }
    if (chosen == NULL) { printf("there is no such platform\n"); return 2; }
    SETUP(clGetDeviceIDs(chosen, CL_DEVICE_TYPE_ALL, 16, devices, &count));
    if (count < 2) { printf("there is only one device\n"); return 2; }
    cl_context context = clCreateContext(NULL, 2, devices, NULL, NULL, &rc); SETUP(rc);
    cl_command_queue one = clCreateCommandQueueWithProperties(context, devices[0], NULL, &rc); SETUP(rc);
    cl_command_queue other = clCreateCommandQueueWithProperties(context, devices[1], NULL, &rc); SETUP(rc);
    cl_mem large = clCreateBuffer(context, CL_MEM_READ_WRITE, LARGE, NULL, &rc); SETUP(rc);
    cl_mem small = clCreateBuffer(context, CL_MEM_READ_WRITE, SMALL, NULL, &rc); SETUP(rc);
    cl_mem target = clCreateBuffer(context, CL_MEM_READ_WRITE, SMALL, NULL, &rc); SETUP(rc);
    cl_uint *bytes = malloc(LARGE);
    signal(SIGALRM, hangs);
    for (int run = 0; run < times; run++) {
        cl_uint word = 0x1000u + (cl_uint)run;
        cl_event filled;
        alarm(10);
        CODE(clEnqueueFillBuffer(one, large, &word, sizeof word, 0, LARGE, 0, NULL, NULL));
        CODE(clEnqueueReadBuffer(one, large, CL_FALSE, 0, LARGE, bytes, 0, NULL, NULL));
        CODE(clEnqueueFillBuffer(one, small, &word, sizeof word, 0, SMALL, 0, NULL, &filled));
        CODE(clFlush(one));
        CODE(clEnqueueFillBuffer(other, target, &word, sizeof word, 0, SMALL, 1, &filled, NULL));
        CODE(clFinish(other));
        CODE(clFinish(one));
        alarm(0);
        clReleaseEvent(filled);
        for (size_t i = 0; i < LARGE / sizeof *bytes; i++) {
            if (bytes[i] != word) { printf("WRONG: word %zu is %x\n", i, bytes[i]); return 1; }
        }
    }
    printf("right in %d runs\n", times);
    return 0;
}
