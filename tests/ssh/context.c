/* Makes a context with the first device, and ends. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>

int main(void) {
    cl_platform_id platform;
    cl_device_id device;
    cl_int code = clGetPlatformIDs(1, &platform, NULL);
    if (!code) code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL);
    if (!code) clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    if (code) printf("error %d\n", code);
    return code != 0;
}
