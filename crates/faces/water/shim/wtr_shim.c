/* The functions of wtr.h and wtr_ext.h that take `...`. They only collect their arguments; src/api
 * does the work.
 *
 * The names end in _c because libwater.so only exports functions of Rust, which jump here
 * (src/api/variadic.rs). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include "wtr_ext.h"

/* Largest number of arguments of a call. OpenCL guarantees 1024 bytes of kernel arguments, which is
 * 4 bytes for each. */
#define ARGUMENTS_MAX 256

/* The same as `Hole` in src/api/variadic.rs. */
typedef struct {
    int64_t whole;
    double real;
    const char *text;
} hole;

/* Functions of src/api. `kind_code` there defines the kinds. */
int wtr_rs_holes(const char *dql, unsigned char *kinds, unsigned most);
void wtr_rs_init_devices(const char *dql, const hole *holes, unsigned count);
wtr_device *wtr_rs_get_device(const char *dql, const hole *holes, unsigned count);
void wtr_rs_too_many(const char *function, unsigned count, unsigned most);

/* Reads the values for the query's holes. Returns their number, or -1 after a reported error. */
static int take_holes(const char *dql, hole *holes, va_list *list) {
    unsigned char kinds[ARGUMENTS_MAX];
    int count = wtr_rs_holes(dql, kinds, ARGUMENTS_MAX);
    for (int i = 0; i < count; i++) {
        hole taken = {0, 0, NULL};
        switch (kinds[i]) {
        case 0: taken.whole = va_arg(*list, int); break;
        case 1: taken.whole = va_arg(*list, unsigned); break;
        case 2: taken.whole = va_arg(*list, long); break;
        case 3: taken.whole = (int64_t)va_arg(*list, unsigned long); break;
        case 4: taken.whole = va_arg(*list, long long); break;
        case 5: taken.whole = (int64_t)va_arg(*list, unsigned long long); break;
        case 6: taken.whole = (int64_t)va_arg(*list, size_t); break;
        case 7: taken.real = va_arg(*list, double); break;
        default: taken.text = va_arg(*list, const char *); break;
        }
        holes[i] = taken;
    }
    return count;
}

void wtr_init_devices_c(const char *dql, ...) {
    hole holes[ARGUMENTS_MAX];
    va_list list;
    va_start(list, dql);
    int count = take_holes(dql, holes, &list);
    va_end(list);
    if (count >= 0) wtr_rs_init_devices(dql, holes, (unsigned)count);
}

wtr_device *wtr_get_device_c(const char *dql, ...) {
    hole holes[ARGUMENTS_MAX];
    va_list list;
    va_start(list, dql);
    int count = take_holes(dql, holes, &list);
    va_end(list);
    return count < 0 ? NULL : wtr_rs_get_device(dql, holes, (unsigned)count);
}

/* Reads pairs of sizes and values. */
static void take_arguments(unsigned count, size_t *sizes, const void **values, va_list *list) {
    for (unsigned i = 0; i < count; i++) {
        /* A program may write the size as a plain 0, which is an int. Then only the low half of the
         * argument is defined. No size needs more than that half. */
        sizes[i] = va_arg(*list, unsigned);
        values[i] = va_arg(*list, const void *);
    }
}

void wtr_run_kernel_c(wtr_kernel *kernel, unsigned dims, const size_t *global, const size_t *local,
                      wtr_event **wait_evt, wtr_event **evt, unsigned count, ...) {
    size_t sizes[ARGUMENTS_MAX];
    const void *values[ARGUMENTS_MAX];
    if (count > ARGUMENTS_MAX) {
        wtr_rs_too_many("wtr_run_kernel", count, ARGUMENTS_MAX);
        return;
    }
    va_list list;
    va_start(list, count);
    take_arguments(count, sizes, values, &list);
    va_end(list);
    wtr_run_kernel_v(kernel, dims, NULL, global, local, wait_evt, evt, count, sizes, values);
}

void wtr_run_collective_c(wtr_heap *heap, wtr_kernel *const *kernels, unsigned dims,
                          const size_t *global, const size_t *local, wtr_event **wait_evt,
                          wtr_event **evt, unsigned count, ...) {
    size_t sizes[ARGUMENTS_MAX];
    const void *values[ARGUMENTS_MAX];
    if (count > ARGUMENTS_MAX) {
        wtr_rs_too_many("wtr_run_collective", count, ARGUMENTS_MAX);
        return;
    }
    va_list list;
    va_start(list, count);
    take_arguments(count, sizes, values, &list);
    va_end(list);
    wtr_run_collective_v(heap, kernels, dims, global, local, wait_evt, evt, count, sizes, values);
}

static int take_events(const char *function, unsigned count, wtr_event **events[ARGUMENTS_MAX],
                       va_list *list) {
    if (count > ARGUMENTS_MAX) {
        wtr_rs_too_many(function, count, ARGUMENTS_MAX);
        return 0;
    }
    for (unsigned i = 0; i < count; i++) events[i] = va_arg(*list, wtr_event **);
    return 1;
}

wtr_event *wtr_merge_events_c(unsigned count, ...) {
    wtr_event **events[ARGUMENTS_MAX];
    va_list list;
    va_start(list, count);
    int fine = take_events("wtr_merge_events", count, events, &list);
    va_end(list);
    return fine ? wtr_merge_events_v(count, (wtr_event * *const *)events) : NULL;
}

void wtr_wait_for_events_c(unsigned count, ...) {
    wtr_event **events[ARGUMENTS_MAX];
    va_list list;
    va_start(list, count);
    int fine = take_events("wtr_wait_for_events", count, events, &list);
    va_end(list);
    if (fine) wtr_wait_for_events_v(count, (wtr_event * *const *)events);
}
