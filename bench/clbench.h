/* Shared by the files of clbench. */
#ifndef CLBENCH_H
#define CLBENCH_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

extern cl_platform_id platform;
extern cl_device_id devices[16];
extern cl_uint device_count;
extern cl_context context; /* over the first device */
extern cl_command_queue queue;
extern bool quick;

double seconds(void);
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* `median` and `percentile` sort the samples. */
double median(double *samples, size_t count);
double percentile(double *samples, size_t count, double share);
/* Prints one line of the result. Units: s (less is better), B/s and /s (more is better), B, or
 * none. */
void row(const char *name, const char *unit, double value);
size_t rounds(size_t full);
void pattern(unsigned char *bytes, size_t size, uint64_t seed);
cl_kernel make_kernel(const char *source, const char *name);
cl_mem make_buffer(size_t size);

void measure_launches(void);
void measure_transfers(void);
void measure_bulk(void);
void measure_maps(void);
void measure_builds(void);
void measure_migration(void);

#define CALL(call)                                                            \
    do {                                                                      \
        cl_int call_code_ = (call);                                           \
        if (call_code_ != CL_SUCCESS)                                         \
            fail("%s:%d: %s gave %d", __FILE__, __LINE__, #call, call_code_); \
    } while (0)

#endif
