/* libWater: devices of a whole cluster, selected by a query; buffers and kernels on these devices;
 * commands ordered by events.
 *
 * Every call that can take time has an argument `evt`. If it is NULL, the call returns when the
 * command has ended. Otherwise the call returns at once, and the event tells when the command has
 * ended. `wait_evt` is an event that must end before the command starts, or NULL. Both are
 * addresses of event pointers, so arrays of events are easy to use: `e + 1`. If `evt` is the
 * address of a NULL pointer, the command creates the event.
 *
 * Memory of the program that a command reads or writes must stay valid until the command has
 * ended, and the program must not change it before. The call itself copies strings, work sizes and
 * the values of kernel arguments.
 *
 * wtr_last_error() of wtr_ext.h returns the error of a call. If a command fails and the program
 * has not set a handler, the program ends with a message, so no error is lost silently. All
 * functions may be called from any thread.
 */
#ifndef WTR_H
#define WTR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WTR_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define WTR_PRINTF(text, first)
#endif

typedef struct wtr_device wtr_device;
typedef struct wtr_buffer wtr_buffer;
typedef struct wtr_kernel wtr_kernel;
typedef struct wtr_event wtr_event;

/* The same values as CL_MEM_* of OpenCL. */
typedef enum { WTR_MEM_READ_WRITE = 1, WTR_MEM_WRITE_ONLY = 2, WTR_MEM_READ_ONLY = 4 } wtr_mem_flag;

/* What `name` of wtr_create_kernel is: a file with OpenCL C, OpenCL C source text, or a file with a
 * binary of the device. */
typedef enum { WTR_SOURCE = 0, WTR_SOURCE_STRING = 1, WTR_BINARY = 2 } wtr_kernel_flag;

/* Kernel arguments of wtr_run_kernel, each a pair of size and address. With size 0 the address is a
 * buffer. */
#define WTR_BUF(buffer) ((size_t)0), (buffer)
#define WTR_ARG(value) sizeof(value), (const void *)&(value)
#define WTR_LOCAL(bytes) ((size_t)(bytes)), ((const void *)NULL)

/* Devices. `dql` is a query (man wtr-dql) with holes as for printf. */
void wtr_init_devices(const char *dql, ...) WTR_PRINTF(1, 2);
/* Takes a query SELECT POS i. Returns NULL if there is no such device. */
wtr_device *wtr_get_device(const char *dql, ...) WTR_PRINTF(1, 2);
int wtr_get_num_devices(void);
void wtr_release_devices(void);
void wtr_print_device_infos(wtr_device *device);

/* Buffers. */
wtr_buffer *wtr_create_buffer(wtr_device *device, wtr_mem_flag flag, size_t size, wtr_event **evt);
void wtr_write_buffer(wtr_buffer *buffer, size_t size, const void *source, wtr_event **wait_evt,
                      wtr_event **evt);
void wtr_read_buffer(wtr_buffer *buffer, size_t size, void *destination, wtr_event **wait_evt,
                     wtr_event **evt);
void wtr_release_buffer(wtr_buffer *buffer, wtr_event **wait_evt, wtr_event **evt);

/* Kernels. */
wtr_kernel *wtr_create_kernel(wtr_device *device, const char *name, const char *kernel_name,
                              const char *build_options, wtr_kernel_flag flag, wtr_event **evt);
void wtr_run_kernel(wtr_kernel *kernel, unsigned work_dim, const size_t *global_work_size,
                    const size_t *local_work_size, wtr_event **wait_evt, wtr_event **evt,
                    unsigned num_args, ...);
void wtr_release_kernel(wtr_kernel *kernel, wtr_event **wait_evt, wtr_event **evt);

/* Events. The variadic arguments are `wtr_event **`. */
wtr_event *wtr_create_event(void);
void wtr_release_event(wtr_event *evt);
wtr_event *wtr_merge_events(unsigned num, ...);
void wtr_wait_for_events(unsigned num, ...);
void wtr_init_event_array(unsigned num, wtr_event **evt);
void wtr_release_event_array(unsigned num, wtr_event **evt);

#ifdef __cplusplus
}
#endif
#endif
