/* What the paper's eighteen functions lack: offsets, copies, array forms for other languages, errors, profiles, flushing, graphs,
 * and partition of work. */
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
    WTR_ETRANSPORT = -20006  /* no way to the other ranks */
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

#ifdef __cplusplus
}
#endif
#endif
