/* A small harness for the C tests: one program per file, one TEST per case, any OpenCL platform.
 *
 *   PENSTOCK_TEST_PLATFORM  part of the name of the platform to test (default: the first platform)
 *   PENSTOCK_TEST_ONLY      part of the name of the cases to run (default: all)
 *
 * Each case prints one line. The program exits with 0 (passed), 1 (failed) or 77 (all cases
 * skipped). A check that PoCL 3.1 itself does not pass stands between GAP_BEGIN and GAP_END. Every
 * other platform must pass it. */
#ifndef PENSTOCK_TEST_HARNESS_H
#define PENSTOCK_TEST_HARNESS_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#endif
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX 16

/* Objects that every case may use, created before the first case and the same for all. */
extern cl_platform_id platform;
extern cl_device_id device; /* the first device */
extern cl_device_id devices[DEVICES_MAX];
extern cl_uint device_count;
extern cl_context context;     /* over `device` alone */
extern cl_command_queue queue; /* in order, on `device` */

typedef void (*test_fn)(void);
void test_register(const char *name, test_fn run);
void test_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void test_abort(void);
_Noreturn void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
void test_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void test_count(void);
extern bool test_in_gap;

#define TEST(name)                                                   \
    static void test_##name(void);                                   \
    __attribute__((constructor)) static void register_##name(void) { \
        test_register(#name, test_##name);                           \
    }                                                                \
    static void test_##name(void)

/* Checks a condition. The case continues after a failure. */
#define CHECK(condition)                                                   \
    do {                                                                   \
        test_count();                                                      \
        if (!(condition)) test_fail(__FILE__, __LINE__, "%s", #condition); \
    } while (0)

/* Checks a condition. A failure ends the case. */
#define REQUIRE(condition)                                   \
    do {                                                     \
        test_count();                                        \
        if (!(condition)) {                                  \
            test_fail(__FILE__, __LINE__, "%s", #condition); \
            test_abort();                                    \
        }                                                    \
    } while (0)

/* Makes a call that must succeed. */
#define OK(call)                                                                      \
    do {                                                                              \
        cl_int ok_code_ = (call);                                                     \
        test_count();                                                                 \
        if (ok_code_ != CL_SUCCESS) {                                                 \
            test_fail(__FILE__, __LINE__, "%s gave %s", #call, error_name(ok_code_)); \
            test_abort();                                                             \
        }                                                                             \
    } while (0)

/* Makes a call that must return exactly this code. */
#define GIVES(code, call)                                                                       \
    do {                                                                                        \
        cl_int gives_code_ = (call);                                                            \
        test_count();                                                                           \
        if (gives_code_ != (code))                                                              \
            test_fail(__FILE__, __LINE__, "%s gave %s, not %s", #call, error_name(gives_code_), \
                      #code);                                                                   \
    } while (0)

/* Makes a call that must return one of two codes, both of which the specification lists without an
 * order. */
#define GIVES_EITHER(one, other, call)                                       \
    do {                                                                     \
        cl_int gives_code_ = (call);                                         \
        test_count();                                                        \
        if (gives_code_ != (one) && gives_code_ != (other))                  \
            test_fail(__FILE__, __LINE__, "%s gave %s, not %s or %s", #call, \
                      error_name(gives_code_), #one, #other);                \
    } while (0)

/* Makes a creating call (last argument: &err) that must fail with this code and return NULL. */
#define REFUSED(code, create)                                                            \
    do {                                                                                 \
        cl_int err = 12345;                                                              \
        const void *refused_ = (create);                                                 \
        test_count();                                                                    \
        if (refused_ != NULL || err != (code))                                           \
            test_fail(__FILE__, __LINE__, "%s gave %s and %s, not NULL and %s", #create, \
                      refused_ ? "an object" : "NULL", error_name(err), #code);          \
    } while (0)

/* A failure between these two is reported, but does not fail the case on PoCL itself. */
#define GAP_BEGIN (test_in_gap = on_pocl())
#define GAP_END (test_in_gap = false)

bool on_pocl(void); /* PoCL itself, not a layer over it */
bool on_penstock(void);
const char *error_name(cl_int code);

/* Contexts, queues, programs. Each function ends the case if it fails. */
cl_context make_context(cl_uint count, const cl_device_id *of);
cl_command_queue make_queue(cl_context in, cl_device_id on, cl_command_queue_properties properties);
cl_mem make_buffer(cl_context in, cl_mem_flags flags, size_t size, void *host);
cl_program build(cl_context in, const char *source, const char *options);
cl_program from_source(const char *source); /* not built, in `context` */
cl_kernel make_kernel(cl_program from, const char *name);
cl_kernel kernel_from(cl_context in, const char *source, const char *name);
void set_mem(cl_kernel kernel, cl_uint index, cl_mem mem);
void launch(cl_command_queue on, cl_kernel kernel, size_t items);
/* Returns the word that the kernel of a built program writes through its only argument. */
cl_int run_for_one_word(cl_program program, const char *name);
cl_event make_user_event(cl_context in);
cl_int status_of(cl_event event);

/* Properties of devices. */
bool device_has_images(cl_device_id of);
void need_images(void); /* skips the case if `device` has none */
bool device_supports_queue(cl_device_id of, cl_command_queue_properties properties);
cl_uint device_uint(cl_device_id of, cl_device_info what);
size_t device_size(cl_device_id of, cl_device_info what);
cl_ulong device_ulong(cl_device_id of, cl_device_info what);
void device_text(cl_device_id of, cl_device_info what, char *text, size_t size);
bool device_has_extension(cl_device_id of, const char *name);

/* Captures the program's output between these two calls into `text`, which ends with a zero byte.
 * `saved` is the result of the first call. */
int capture_begin(void);
void capture_end(int saved, char *text, size_t size);

/* Data: the same seed yields the same bytes. */
void pattern(void *bytes, size_t size, unsigned seed);
bool same_pattern(const void *bytes, size_t size, unsigned seed);
/* Runs a kernel with one argument, a buffer, in one group of `items` items, and returns the first
 * word that the kernel has written to the buffer. */
cl_uint word_of(cl_context of, cl_command_queue on, cl_kernel kernel, size_t items);
void write_pattern(cl_command_queue on, cl_mem mem, size_t size, unsigned seed);
bool read_pattern(cl_command_queue on, cl_mem mem, size_t size, unsigned seed);

double seconds(void);    /* a clock that only goes forward */
double patience_s(void); /* after which something hangs: tests/patience.py */
bool wait_until(volatile int *flag, int value, double limit_s);

#endif
