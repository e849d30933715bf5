/* Intel's runtime for CPUs hangs when a queue is released while its last command is under way. The thread that ends the command destroys the queue,
 * and the destructor waits for the tasks of the queue, of which the thread's own is one. With few cores nothing is run any more after that.
 *
 * cc -O1 NAME.c -lOpenCL; ./a.out [TIMES [PART OF THE PLATFORM'S NAME]]
 * Exit status: 0 right in all runs, 1 it hangs, 2 cannot be tried here. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GOOD(call) do { cl_int code_ = (call); if (code_) { printf("%s: %d\n", #call, code_); exit(2); } } while (0)
#define BYTES (8 << 20)

static void hangs(int number) {
    static const char text[] = "WRONG: the program hangs\n";
    (void)number;
    if (write(1, text, sizeof text - 1)) {}
    _exit(1);
}

int main(int argc, char **argv) {
    const int runs = argc > 1 ? atoi(argv[1]) : 200;
    const char *wanted = argc > 2 ? argv[2] : "Intel";
    cl_platform_id platforms[16], platform = NULL;
    cl_uint count = 0;
    cl_device_id device;
    cl_int code;
    GOOD(clGetPlatformIDs(16, platforms, &count));
    for (cl_uint i = 0; i < count && i < 16; i++) {
        char name[256] = "";
        clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof name, name, NULL);
        if (!platform && strstr(name, wanted)) platform = platforms[i];
    }
    if (!platform) return printf("no platform %s\n", wanted), 2;
    GOOD(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    GOOD(code);
    cl_mem mem = clCreateBuffer(context, CL_MEM_READ_WRITE, BYTES, NULL, &code);
    GOOD(code);
    char *bytes = malloc(BYTES);
    signal(SIGALRM, hangs);
    const cl_queue_properties out_of_order[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, 0};
    for (int i = 0; i < runs; i++) {
        cl_event read;
        alarm(20);
        cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, out_of_order, &code);
        GOOD(code);
        GOOD(clEnqueueReadBuffer(queue, mem, CL_FALSE, 0, BYTES, bytes, 0, NULL, &read));
        GOOD(clFlush(queue));
        GOOD(clReleaseCommandQueue(queue));
        GOOD(clReleaseEvent(read));
        /* A command of another queue, to see whether anything runs yet. */
        queue = clCreateCommandQueueWithProperties(context, device, NULL, &code);
        GOOD(code);
        GOOD(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, 4, bytes, 0, NULL, NULL));
        GOOD(clFinish(queue));
        GOOD(clReleaseCommandQueue(queue));
    }
    printf("right in %d runs\n", runs);
    return 0;
}
