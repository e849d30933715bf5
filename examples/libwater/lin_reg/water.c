/* Linear regression on all devices, with libWater: the candidates are split, the points go to every
 * device. */
#include <wtr_ext.h>

#include "lin_reg.h"

const char *const host_name = "water";

unsigned host_start(const struct options *options) {
    wtr_init_devices_v(options->devices);
    return (unsigned)wtr_get_num_devices();
}

void host_solve(const struct options *options, struct problem *p) {
    enum {
        KERNEL,
        X,
        Y,
        ALPHA,
        BETA,
        ERROR,
        X_SENT,
        Y_SENT,
        ALPHA_SENT,
        BETA_SENT,
        READY,
        RAN,
        FREED,
        EVENTS
    };
    const unsigned devices = (unsigned)wtr_get_num_devices();
    const size_t whole = p->points * sizeof(float);
    size_t parts[devices], first = 0;
    wtr_event *done[devices];
    wtr_partition(p->candidates, 1, devices, options->weights, parts);
    wtr_init_event_array(devices, done);
    for (unsigned i = 0; i < devices; first += parts[i++]) {
        const size_t part = parts[i] * sizeof(float);
        wtr_event *e[EVENTS] = {0};
        wtr_device *device = wtr_get_device("SELECT POS %u", i + 1);
        wtr_kernel *kernel = wtr_create_kernel(device, options->kernel, "lin_reg", BUILD_OPTIONS,
                                               WTR_SOURCE, e + KERNEL);
        wtr_buffer *x = wtr_create_buffer(device, WTR_MEM_READ_ONLY, whole, e + X);
        wtr_buffer *y = wtr_create_buffer(device, WTR_MEM_READ_ONLY, whole, e + Y);
        wtr_buffer *alpha = wtr_create_buffer(device, WTR_MEM_READ_ONLY, part, e + ALPHA);
        wtr_buffer *beta = wtr_create_buffer(device, WTR_MEM_READ_ONLY, part, e + BETA);
        wtr_buffer *error = wtr_create_buffer(device, WTR_MEM_WRITE_ONLY, part, e + ERROR);
        wtr_write_buffer(x, whole, p->x, e + X, e + X_SENT);
        wtr_write_buffer(y, whole, p->y, e + Y, e + Y_SENT);
        wtr_write_buffer(alpha, part, p->alpha + first, e + ALPHA, e + ALPHA_SENT);
        wtr_write_buffer(beta, part, p->beta + first, e + BETA, e + BETA_SENT);
        e[READY] = wtr_merge_events(6, e + KERNEL, e + X_SENT, e + Y_SENT, e + ALPHA_SENT,
                                    e + BETA_SENT, e + ERROR);
        wtr_run_kernel(kernel, 1, parts + i, NULL, e + READY, e + RAN, 6, WTR_BUF(x), WTR_BUF(y),
                       WTR_BUF(alpha), WTR_BUF(beta), WTR_BUF(error), WTR_ARG(p->points));
        wtr_read_buffer(error, part, p->error + first, e + RAN, done + i);
        /* Nobody waits for these but wtr_release_devices(), so one event serves for all. */
        wtr_release_buffer(x, e + RAN, e + FREED);
        wtr_release_buffer(y, e + RAN, e + FREED);
        wtr_release_buffer(alpha, e + RAN, e + FREED);
        wtr_release_buffer(beta, e + RAN, e + FREED);
        wtr_release_buffer(error, done + i, e + FREED);
        wtr_release_kernel(kernel, e + RAN, e + FREED);
        wtr_release_event_array(EVENTS, e);
    }
    for (unsigned i = 0; i < devices; i++) wtr_wait_for_events(1, done + i);
    wtr_release_event_array(devices, done);
}

void host_stop(void) { wtr_release_devices(); }
