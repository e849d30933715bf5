/* Commands fail one after the other because the user event that the first one waits for has failed. The program has released the
 * events of half of them before. PoCL 3.1 aborts ("PTHREAD ERROR: Invalid argument"); other drivers end the program.
 * The program was written by hand, after workers had been aborted when another node was lost.
 *
 * cc -O1 NAME.c -lOpenCL; ./a.out [PART OF THE PLATFORM'S NAME]
 * Exit status: 0 right, 2 cannot be tried here. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(call)                                      \
    do {                                              \
        cl_int code_ = (call);                        \
        if (code_ != CL_SUCCESS) {                    \
            printf("%s gives %d\n", #call, code_);    \
            exit(2);                                  \
        }                                             \
    } while (0)

enum { ROUNDS = 400, LENGTH = 40, BYTES = 8192 };

static cl_device_id device_of(const char *wanted) {
    cl_platform_id all[16];
    cl_device_id device;
    cl_uint count = 0;
    OK(clGetPlatformIDs(16, all, &count));
    for (cl_uint i = 0; i < count && i < 16; i++) {
        char name[256] = "";
        OK(clGetPlatformInfo(all[i], CL_PLATFORM_NAME, sizeof name - 1, name, NULL));
        if (!strstr(name, wanted)) continue;
        OK(clGetDeviceIDs(all[i], CL_DEVICE_TYPE_ALL, 1, &device, NULL));
        return device;
    }
    printf("there is no such platform\n");
    exit(2);
}

int main(int argc, char **argv) {
    cl_int code;
    cl_device_id device = device_of(argc > 1 ? argv[1] : "");
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    OK(code);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
    OK(code);
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, BYTES, NULL, &code);
    OK(code);
    for (int round = 0; round < ROUNDS; round++) {
        cl_event events[LENGTH], marker, gate = clCreateUserEvent(context, &code);
        OK(code);
        for (int i = 0; i < LENGTH; i++)
            OK(clEnqueueCopyBuffer(queue, buffer, buffer, 0, BYTES / 2, BYTES / 2, 1, i ? &events[i - 1] : &gate, &events[i]));
        OK(clEnqueueMarkerWithWaitList(queue, LENGTH, events, &marker));
        OK(clFlush(queue));
        for (int i = 0; i < LENGTH; i += 2) OK(clReleaseEvent(events[i]));
        OK(clSetUserEventStatus(gate, -5));
        for (int i = 1; i < LENGTH; i += 2) OK(clReleaseEvent(events[i]));
        OK(clReleaseEvent(gate));
        OK(clReleaseEvent(marker));
    }
    printf("right in %d rounds\n", ROUNDS);
    return 0;
}
