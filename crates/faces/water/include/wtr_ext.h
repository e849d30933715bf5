/* Additions to the paper's eighteen functions: offsets, copies, array forms for other languages,
 * errors, profiles, flushing, graphs, partition of work, and heaps for kernels that talk to each
 * other. */
#ifndef WTR_EXT_H
#define WTR_EXT_H

#include "wtr.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Errors in addition to OpenCL's own codes. */
enum {
    WTR_SUCCESS = 0,
    WTR_EINVAL = -20001,     /* a wrong argument: NULL, a released object, one of another device */
    WTR_EQUERY = -20002,     /* the query is wrong, or no device matches it */
    WTR_ESTATE = -20003,     /* libWater is not initialised, or is initialised already */
    WTR_ENODE = -20004,      /* a node is lost */
    WTR_EFILE = -20005,      /* a file cannot be read */
    WTR_ETRANSPORT = -20006, /* there is no way to the other ranks */
    WTR_EABORTED = -20007,   /* a heap was aborted or lost a process; waiting kernels returned */
    WTR_ERESIDENT = -20008   /* not all work-groups of a collective launch can run at once */
};

typedef struct {
    int code;            /* CL_* or WTR_E* */
    const char *message; /* what happened, where, and what to do; the last line has no \n */
    const char *node;    /* host name; empty if a call failed */
    const char *device;  /* name; empty if a call failed */
    const char *log;     /* build log; empty if there is none */
} wtr_error;

/* Returns the error of this thread's last call, or NULL if that call succeeded. Valid until the
 * thread's next call. */
const wtr_error *wtr_last_error(void);

/* The handler is called once for each root cause, in the thread that finds it. The program then
 * goes on. NULL restores the default, which prints the error and aborts. */
typedef void (*wtr_error_handler)(const wtr_error *error, void *user);
void wtr_set_error_handler(wtr_error_handler handler, void *user);

/* Offsets are in bytes. */
void wtr_write_buffer_at(wtr_buffer *buffer, size_t offset, size_t size, const void *source,
                         wtr_event **wait_evt, wtr_event **evt);
void wtr_read_buffer_at(wtr_buffer *buffer, size_t offset, size_t size, void *destination,
                        wtr_event **wait_evt, wtr_event **evt);

/* Copies between buffers of any devices. The bytes do not pass through the program. */
void wtr_copy_buffer(wtr_buffer *source, size_t source_offset, wtr_buffer *target,
                     size_t target_offset, size_t size, wtr_event **wait_evt, wtr_event **evt);

/* Array forms, for bindings to other languages. sizes[i] is 0 for a buffer. `global_offset` may be
 * NULL. */
void wtr_run_kernel_v(wtr_kernel *kernel, unsigned work_dim, const size_t *global_offset,
                      const size_t *global_work_size, const size_t *local_work_size,
                      wtr_event **wait_evt, wtr_event **evt, unsigned num_args, const size_t *sizes,
                      const void *const *values);
wtr_event *wtr_merge_events_v(unsigned num, wtr_event **const *events);
void wtr_wait_for_events_v(unsigned num, wtr_event **const *events);
void wtr_init_devices_v(const char *dql);      /* no holes */
wtr_device *wtr_get_device_v(const char *dql); /* no holes */

/* Sends all commands issued so far, without waiting for their ends. */
void wtr_flush(void);

/* Returns 1 if the event has not ended, 0 if it has succeeded, or the negative code of its error.
 * Does not block. */
int wtr_event_status(wtr_event *evt);

/* Returns the error of a failed event, or NULL if it has not failed. Valid until the event is
 * released. */
const wtr_error *wtr_event_error(wtr_event *evt);

/* When the event's last command ran, in ns of a clock that all ranks share. 0 means unknown. */
typedef struct {
    uint64_t queued, received, started, ended;
} wtr_profile;
int wtr_event_profile(wtr_event *evt, wtr_profile *profile); /* returns 0 or a code */

/* Writes an attribute of a device, with the names and values of DQL. Returns the length without
 * the terminating zero, or a code. */
int wtr_device_attribute(wtr_device *device, const char *attribute, char *value, size_t size);

/* Writes the graph of this run's commands so far in the language of Graphviz (x.dot), and beside it
 * the graph of the jobs that the runtime made of them (x.after.dot). Needs WTR_RECORD=1 (or
 * WTR_GRAPH, WTR_TRACE, WTR_SUMMARY) in the environment when the run begins. Returns 0 or a
 * code. */
int wtr_dump_graph(const char *path);

/* Splits `total` units among `count` devices in multiples of `granularity`, and stores the sizes in
 * `parts`. The last device with a weight above 0 also gets the remainder. `weights` are relative
 * speeds; NULL splits evenly. Returns 0 or a code. */
int wtr_partition(size_t total, size_t granularity, unsigned count, const double *weights,
                  size_t *parts);

/* Computes relative speeds as compute units times clock. Returns 0 or a code. */
int wtr_partition_weights(unsigned count, wtr_device *const *devices, double *weights);

/* Measures relative speeds: calls `probe` once for each device, one after the other, with a small
 * part of the work. `probe` issues the commands and waits for them. The speed is `units` divided by
 * the time that it took. Returns 0 or a code. */
typedef void (*wtr_probe)(unsigned index, size_t units, void *user);
int wtr_partition_measure(unsigned count, size_t units, wtr_probe probe, void *user,
                          double *weights);

/* Self-scheduling: hands slices of at least `minimum` units to devices that are free, with two
 * slices per device under way. Sizes shrink with the remaining work, and depend on the speeds seen
 * so far. `body` issues the commands of a slice and stores the event that ends it, which this
 * function releases; a body that blocks stores none. Returns when all work is done: 0, or the code
 * of a failed slice. */
typedef void (*wtr_slice)(unsigned index, size_t first, size_t units, wtr_event **evt, void *user);
int wtr_self_schedule(unsigned count, size_t total, size_t minimum, wtr_slice body, void *user);

/* Heaps: memory of equal size for each of several devices. Kernels of all of them reach all of it,
 * so they can talk to each other without the host. Each device is a PE, numbered by its index in
 * `devices`. Kernels include <ggas.h>, which needs no path and describes what they can do. The heap
 * is an argument of the kernel, `__global ggas_heap_t *`.
 *
 * The devices must compute on the host's memory (CPUs). There are at most 64, each once. Between
 * devices of one host kernels store bytes directly; between hosts a thread of each rank sends
 * them. */
typedef struct wtr_heap wtr_heap;

typedef struct {
    size_t size;         /* sizeof(wtr_heap_options) */
    uint64_t timeout_ms; /* how long a kernel waits before it gets GGAS_TIMEOUT; 0: 30 s */
    int force_proxy;     /* not 0: send bytes even if memory could be shared, for tests */
} wtr_heap_options;

/* Creates a heap with `bytes` for each device, all zero. `options` may be NULL. */
wtr_heap *wtr_create_heap(unsigned num_devices, wtr_device *const *devices, size_t bytes,
                          const wtr_heap_options *options, wtr_event **evt);
unsigned wtr_heap_num_pes(wtr_heap *heap);

/* Returns one device's bytes as a buffer. It can be read, written, copied, and passed to kernels of
 * that device. The program must not release it: it ends with the heap. */
wtr_buffer *wtr_heap_part(wtr_heap *heap, unsigned pe);

/* Returns how bytes get from one PE to another, or a code. OWN: within one process; SHARED: through
 * memory of one host; PROXY: a thread sends them. */
enum { WTR_PATH_OWN = 1, WTR_PATH_SHARED = 2, WTR_PATH_PROXY = 3 };
int wtr_heap_path(wtr_heap *heap, unsigned from_pe, unsigned to_pe);

/* Additional kernel arguments: the heap of the launch, and an array of buffers, one for each PE. */
#define WTR_HEAP(heap) ((size_t)0), (const void *)(heap)
#define WTR_BUFS(buffers) ((size_t)0xfffffffeu), (const void *)(buffers)

/* Runs one kernel for each PE, all at the same time. kernels[i] belongs to the device of PE i.
 * Arguments and work sizes are the same for all. A local work size is required: if a device cannot
 * run all its work-groups at the same time, the launch fails with WTR_ERESIDENT. Launches run one
 * after the other, also those over different heaps. If the heap is aborted or loses a rank, the
 * event fails. */
void wtr_run_collective(wtr_heap *heap, wtr_kernel *const *kernels, unsigned work_dim,
                        const size_t *global_work_size, const size_t *local_work_size,
                        wtr_event **wait_evt, wtr_event **evt, unsigned num_args, ...);
void wtr_run_collective_v(wtr_heap *heap, wtr_kernel *const *kernels, unsigned work_dim,
                          const size_t *global_work_size, const size_t *local_work_size,
                          wtr_event **wait_evt, wtr_event **evt, unsigned num_args,
                          const size_t *sizes, const void *const *values);

/* Ends all waits of kernels over the heap with GGAS_ABORTED. Afterwards the heap can only be reset
 * or released. `reason` may be NULL. */
void wtr_abort_heap(wtr_heap *heap, const char *reason);

/* Makes the heap usable again after an abort or a time-out, once the last launch over it has ended
 * in any way. Later launches wait for the reset. The parts keep their bytes, including signals:
 * write zeros before you count from 1 again. Fails with WTR_EABORTED if a rank of the heap is lost;
 * create another heap then. */
void wtr_reset_heap(wtr_heap *heap, wtr_event **wait_evt, wtr_event **evt);

/* Releases the heap when the last launch over it has ended. */
void wtr_release_heap(wtr_heap *heap, wtr_event **wait_evt, wtr_event **evt);

#ifdef __cplusplus
}
#endif
#endif
