/* Block matrix product C = A B over every OpenCL device of the machine, or of the pool: shared
 * declarations. */
#ifndef MATMUL_H
#define MATMUL_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../common/helpers.h"

/* Penstock tells on which host a platform or device is; other platforms do not know these queries.
 */
#ifndef CL_PLATFORM_HOSTNAME_PENSTOCK
#define CL_PLATFORM_HOSTNAME_PENSTOCK 0x50530001
#endif
#ifndef CL_DEVICE_HOSTNAME_PENSTOCK
#define CL_DEVICE_HOSTNAME_PENSTOCK 0x50530002
#endif

#define DEVICES_MAX 64

struct options {
    size_t n, slice;
    size_t depth;         /* slices in flight per device */
    unsigned rounds;      /* random vectors of the check */
    const char *platform; /* part of a platform's name, or NULL: all platforms */
    const char *devices;  /* numbers with commas, or NULL: all devices */
    const char *timeline; /* an SVG file to write, or NULL */
    bool json, list, keep, wide, check;
};

/* One step of one slice, in seconds since the start of the product. */
enum step { STEP_WRITE, STEP_KERNEL, STEP_READ, STEPS };
struct bar {
    enum step step;
    unsigned row, column; /* which block of C */
    double start_s, end_s;
};

struct device {
    cl_platform_id platform;
    cl_device_id id;
    char name[128], host[128], platform_name[128];
    /* What the product made of it. */
    size_t slices;
    double kernel_s, transfer_s; /* while at least one kernel ran, one transfer ran */
    struct bar *bars;
    size_t bar_count, bar_room;
};

bool options_read(struct options *options, int argc, char **argv, int *exit_code);

/* The check of Freivalds: C r = A (B r) for random r. Returns the number of rows of C that are
 * wrong. */
size_t check_product(size_t n, const float *a, const float *b_transposed, const float *c,
                     unsigned rounds);

/* The rows of the table and the picture. */
bool timeline_write(const char *file, const struct device *devices, size_t count, double total_s,
                    const struct options *options);

const char *error_name(cl_int code);

#define CALL(call)                                                          \
    do {                                                                    \
        cl_int call_code_ = (call);                                         \
        if (call_code_ != CL_SUCCESS)                                       \
            fail("%s: %s (%d)", #call, error_name(call_code_), call_code_); \
    } while (0)

#endif
