/* What the paper's eighteen functions lack: offsets, copies, array forms for other languages, errors, profiles, flushing, graphs,
 * partition of work, and heaps for kernels that talk to each other. */
#ifndef WTR_EXT_H
#define WTR_EXT_H

#include "wtr.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Errors beside OpenCL's own codes. */
enum {
    WTR_SUCCESS = 0,
    WTR_EINVAL = -20001,     /* a wrong argument: NULL, a released object, an object of another device */
    WTR_EQUERY = -20002,     /* a query that is wrong, or that no device answers */
    WTR_ESTATE = -20003,     /* not initialised, or twice */
    WTR_ENODE = -20004,      /* a node is lost */
    WTR_EFILE = -20005,      /* a file cannot be read */
    WTR_ETRANSPORT = -20006, /* no way to the other ranks */
    WTR_EABORTED = -20007,   /* a heap was aborted, or one of its processes is gone: kernels that waited there have returned */
    WTR_ERESIDENT = -20008   /* work-groups that wait for each other can not all run at the same time */
};

typedef struct {
    int code;            /* CL_* or WTR_E* */
    const char *message; /* what happened, where, and what to do; lines end with \n but for the last */
    const char *node;    /* host name; empty for errors of a call */
    const char *device;  /* name; empty likewise */
    const char *log;     /* build log; empty if there is none */
} wtr_error;

/* The last error of a call in this thread; NULL if the last call was fine. Valid until the thread's next call. */
const wtr_error *wtr_last_error(void);

/* Called once for each root cause, in the thread that finds it. The program goes on; NULL restores the default, which prints and aborts. */
typedef void (*wtr_error_handler)(const wtr_error *error, void *user);
void wtr_set_error_handler(wtr_error_handler handler, void *user);

/* Offsets, in bytes. */
void wtr_write_buffer_at(wtr_buffer *buffer, size_t offset, size_t size, const void *source, wtr_event **wait_evt, wtr_event **evt);
void wtr_read_buffer_at(wtr_buffer *buffer, size_t offset, size_t size, void *destination, wtr_event **wait_evt, wtr_event **evt);

/* From buffer to buffer, of any devices: the bytes do not pass the program. */
void wtr_copy_buffer(wtr_buffer *source, size_t source_offset, wtr_buffer *target, size_t target_offset, size_t size,
                     wtr_event **wait_evt, wtr_event **evt);

/* Array forms, for bindings. sizes[i] is 0 for a buffer. `global_offset` may be NULL. */
void wtr_run_kernel_v(wtr_kernel *kernel, unsigned work_dim, const size_t *global_offset, const size_t *global_work_size,
                      const size_t *local_work_size, wtr_event **wait_evt, wtr_event **evt, unsigned num_args,
                      const size_t *sizes, const void *const *values);
wtr_event *wtr_merge_events_v(unsigned num, wtr_event **const *events);
void wtr_wait_for_events_v(unsigned num, wtr_event **const *events);
void wtr_init_devices_v(const char *dql);          /* no holes */
wtr_device *wtr_get_device_v(const char *dql);     /* no holes */

/* Sends what was issued so far, without waiting. */
void wtr_flush(void);

/* An event's state: 1 not ended, 0 ended well, negative its error. Does not wait. */
int wtr_event_status(wtr_event *evt);

/* The error of a failed event; NULL if it has not failed. Valid until the event is released. */
const wtr_error *wtr_event_error(wtr_event *evt);

/* When the event's last command ran, in ns of a clock that all ranks share; 0 is unknown. */
typedef struct {
    uint64_t queued, received, started, ended;
} wtr_profile;
int wtr_event_profile(wtr_event *evt, wtr_profile *profile); /* 0, or a code */

/* What is known of a device: DQL's attribute names, values as DQL writes them. Bytes written without the end, or a code. */
int wtr_device_attribute(wtr_device *device, const char *attribute, char *value, size_t size);

/* Writes the graph of the commands of this run so far, in the language of Graphviz, and what the runtime made of it beside it: x.dot and
 * x.after.dot. Needs WTR_RECORD=1 (or WTR_GRAPH, WTR_TRACE, WTR_SUMMARY) in the environment when the run begins. 0, or a code. */
int wtr_dump_graph(const char *path);

/* Splits `total` units among `count` devices in multiples of `granularity` (the last takes what is left over): sizes to `parts`.
 * `weights` are relative speeds; NULL splits evenly. 0, or a code. */
int wtr_partition(size_t total, size_t granularity, unsigned count, const double *weights, size_t *parts);

/* Relative speeds from what the devices say of themselves: compute units times clock. */
int wtr_partition_weights(unsigned count, wtr_device *const *devices, double *weights);

/* Relative speeds measured: runs `probe` once for each device, one after the other, with a small part of the work; it issues the
 * commands and waits. Throughput is `units` by the time it took. */
typedef void (*wtr_probe)(unsigned index, size_t units, void *user);
int wtr_partition_measure(unsigned count, size_t units, wtr_probe probe, void *user, double *weights);

/* Self-scheduling: slices of at least `minimum` units are handed to whichever device is free, two per device under way; sizes shrink
 * with what is left (guided by the speed seen so far). `body` issues the slice's commands for one device and stores the event that ends it,
 * which is released by this function; a body that blocks stores none. Returns when all is done: 0, or the code of a slice that failed. */
typedef void (*wtr_slice)(unsigned index, size_t first, size_t units, wtr_event **evt, void *user);
int wtr_self_schedule(unsigned count, size_t total, size_t minimum, wtr_slice body, void *user);

/* Heaps: memory of equal size for each of several devices, which kernels of all of them reach, so that they talk to each other without the
 * host. A device is a PE there, with the number of its place in `devices`. Kernels include <ggas.h>, which needs no path and says what they
 * can do; the heap is an argument of theirs, `__global ggas_heap_t *`.
 *
 * The devices have to compute on the host's memory (CPUs), at most 64 of them, each once. Between devices of one host bytes are stored
 * where they shall be; between hosts a thread of each rank sends them. */
typedef struct wtr_heap wtr_heap;

typedef struct {
    size_t size;         /* sizeof(wtr_heap_options) */
    uint64_t timeout_ms; /* how long a kernel waits for another before it gets GGAS_TIMEOUT; 0: 30 s */
    int force_proxy;     /* not 0: by sending also where memory could be shared, to try it */
} wtr_heap_options;

/* `bytes` for each device, zero. `options` may be NULL. */
wtr_heap *wtr_create_heap(unsigned num_devices, wtr_device *const *devices, size_t bytes, const wtr_heap_options *options,
                          wtr_event **evt);
unsigned wtr_heap_num_pes(wtr_heap *heap);

/* One device's bytes, as a buffer: to be read, written, copied, and given to kernels of that device. Not to be released: it goes with the heap. */
wtr_buffer *wtr_heap_part(wtr_heap *heap, unsigned pe);

/* How bytes get from one PE to another, or a code. */
enum { WTR_PATH_OWN = 1 /* one process */, WTR_PATH_SHARED = 2 /* memory of one host */, WTR_PATH_PROXY = 3 /* they are sent */ };
int wtr_heap_path(wtr_heap *heap, unsigned from_pe, unsigned to_pe);

/* More kernel arguments: the heap of the launch, and an array of buffers, one for each PE. */
#define WTR_HEAP(heap) ((size_t)0), (const void *)(heap)
#define WTR_BUFS(buffers) ((size_t)0xfffffffeu), (const void *)(buffers)

/* Runs one kernel for each PE, all at the same time; kernels[i] is of the device of PE i. Arguments and work sizes are the same for all. Refused
 * with WTR_ERESIDENT if a device can not run all its work-groups at the same time, so a local work size has to be given. Launches run
 * one after the other, over whatever heaps. If the heap is aborted, or a rank of it is lost, the event fails. */
void wtr_run_collective(wtr_heap *heap, wtr_kernel *const *kernels, unsigned work_dim, const size_t *global_work_size,
                        const size_t *local_work_size, wtr_event **wait_evt, wtr_event **evt, unsigned num_args, ...);
void wtr_run_collective_v(wtr_heap *heap, wtr_kernel *const *kernels, unsigned work_dim, const size_t *global_work_size,
                          const size_t *local_work_size, wtr_event **wait_evt, wtr_event **evt, unsigned num_args,
                          const size_t *sizes, const void *const *values);

/* Ends all waits of kernels over the heap: they get GGAS_ABORTED. The heap can only be reset or released afterwards. `reason` may be NULL. */
void wtr_abort_heap(wtr_heap *heap, const char *reason);

/* Makes the heap usable again after an abort or a timeout, when the last launch over it has ended, however it ended; launches after it wait for
 * it. The parts' bytes stay as they are, signals too: write zeros before you count from 1 again. Fails with WTR_EABORTED if a rank of the heap is
 * lost: make another heap then. */
void wtr_reset_heap(wtr_heap *heap, wtr_event **wait_evt, wtr_event **evt);

/* When the last launch over it has ended. */
void wtr_release_heap(wtr_heap *heap, wtr_event **wait_evt, wtr_event **evt);

#ifdef __cplusplus
}
#endif
#endif
