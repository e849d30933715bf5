/* Gradient noise on all devices, with libWater: each computes some rows. */
#include <wtr_ext.h>

#include "perlin_noise.h"

const char *const host_name = "water";

unsigned host_start(const struct options *options) {
    wtr_init_devices_v(options->devices);
    return (unsigned)wtr_get_num_devices();
}

void host_solve(const struct options *options, struct problem *p) {
    enum { KERNEL, PICTURE, READY, RAN, FREED, EVENTS };
    const unsigned devices = (unsigned)wtr_get_num_devices();
    size_t rows[devices];
    uint64_t first = 0;
    wtr_event *done[devices];
    wtr_partition(p->n, 1, devices, options->weights, rows);
    wtr_init_event_array(devices, done);
    for (unsigned i = 0; i < devices; first += rows[i++]) {
        const size_t part = rows[i] * p->n * sizeof(float);
        wtr_event *e[EVENTS] = {0};
        wtr_device *device = wtr_get_device("SELECT POS %u", i + 1);
        wtr_kernel *kernel = wtr_create_kernel(device, options->kernel, "perlin_noise",
                                               BUILD_OPTIONS, WTR_SOURCE, e + KERNEL);
        wtr_buffer *picture = wtr_create_buffer(device, WTR_MEM_WRITE_ONLY, part, e + PICTURE);
        e[READY] = wtr_merge_events(2, e + KERNEL, e + PICTURE);
        wtr_run_kernel(kernel, 2, (size_t[]){p->n, rows[i]}, NULL, e + READY, e + RAN, 3,
                       WTR_BUF(picture), WTR_ARG(p->n), WTR_ARG(first));
        wtr_read_buffer(picture, part, p->picture + first * p->n, e + RAN, done + i);
        /* Nobody waits for these but wtr_release_devices(), so one event serves for all. */
        wtr_release_buffer(picture, done + i, e + FREED);
        wtr_release_kernel(kernel, e + RAN, e + FREED);
        wtr_release_event_array(EVENTS, e);
    }
    for (unsigned i = 0; i < devices; i++) wtr_wait_for_events(1, done + i);
    wtr_release_event_array(devices, done);
}

void host_stop(void) { wtr_release_devices(); }
