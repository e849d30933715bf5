/* The matrix product on all devices, with libWater: A and C are split into rows, B goes to every
 * device. */
#include <wtr_ext.h>

#include "matrix_mul.h"

const char *const host_name = "water";

unsigned host_start(const struct options *options) {
    wtr_init_devices_v(options->devices);
    return (unsigned)wtr_get_num_devices();
}

void host_solve(const struct options *options, struct problem *p) {
    enum { KERNEL, A, B, C, A_SENT, B_SENT, READY, RAN, FREED, EVENTS };
    const unsigned devices = (unsigned)wtr_get_num_devices();
    const size_t n = p->n, whole = n * n * sizeof(float);
    size_t rows[devices], first = 0;
    wtr_event *done[devices];
    wtr_partition(n, 1, devices, options->weights, rows);
    wtr_init_event_array(devices, done);
    for (unsigned i = 0; i < devices; first += rows[i++]) {
        const size_t part = rows[i] * n * sizeof(float);
        wtr_event *e[EVENTS] = {0};
        wtr_device *device = wtr_get_device("SELECT POS %u", i + 1);
        wtr_kernel *kernel =
            wtr_create_kernel(device, options->kernel, "matrix_mul", "", WTR_SOURCE, e + KERNEL);
        wtr_buffer *a = wtr_create_buffer(device, WTR_MEM_READ_ONLY, part, e + A);
        wtr_buffer *b = wtr_create_buffer(device, WTR_MEM_READ_ONLY, whole, e + B);
        wtr_buffer *c = wtr_create_buffer(device, WTR_MEM_WRITE_ONLY, part, e + C);
        wtr_write_buffer(a, part, p->a + first * n, e + A, e + A_SENT);
        wtr_write_buffer(b, whole, p->b, e + B, e + B_SENT);
        e[READY] = wtr_merge_events(4, e + KERNEL, e + A_SENT, e + B_SENT, e + C);
        wtr_run_kernel(kernel, 2, (size_t[]){n, rows[i]}, NULL, e + READY, e + RAN, 4, WTR_BUF(a),
                       WTR_BUF(b), WTR_BUF(c), WTR_ARG(p->n));
        wtr_read_buffer(c, part, p->c + first * n, e + RAN, done + i);
        /* Nobody waits for these but wtr_release_devices(), so one event serves for all. */
        wtr_release_buffer(a, e + RAN, e + FREED);
        wtr_release_buffer(b, e + RAN, e + FREED);
        wtr_release_buffer(c, done + i, e + FREED);
        wtr_release_kernel(kernel, e + RAN, e + FREED);
        wtr_release_event_array(EVENTS, e);
    }
    for (unsigned i = 0; i < devices; i++) wtr_wait_for_events(1, done + i);
    wtr_release_event_array(devices, done);
}

void host_stop(void) { wtr_release_devices(); }
