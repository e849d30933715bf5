/* Shortest paths on all devices, with libWater: each has the whole matrix and computes some of its rows. In each turn the owner of the
 * pivots' rows computes those first, and sends them to all others. */
#include <wtr_ext.h>

#include "floyd.h"

const char *const host_name = "water";

enum { DIAGONAL, PIVOT_ROWS, PIVOT_COLUMNS, REST, KERNELS };
static const char *const kernel_names[KERNELS] = {"diagonal", "pivot_rows", "pivot_columns", "rest"};

/* What one device does. */
struct part {
    uint64_t first, rows;
    wtr_kernel *kernels[KERNELS];
    wtr_buffer *distance;
    wtr_event *last; /* its last command: the next one waits for it */
};

unsigned host_start(const struct options *options) {
    wtr_init_devices_v(options->devices);
    return (unsigned)wtr_get_num_devices();
}

static void begin(struct part *part, wtr_device *device, const struct options *options, const struct problem *p) {
    const size_t bytes = p->n * p->n * sizeof(uint32_t);
    wtr_event *e[KERNELS] = {0}, *sent = NULL;
    for (int i = 0; i < KERNELS; i++)
        part->kernels[i] = wtr_create_kernel(device, options->kernel, kernel_names[i], p->build_options, WTR_SOURCE, e + i);
    part->distance = wtr_create_buffer(device, WTR_MEM_READ_WRITE, bytes, &sent);
    wtr_write_buffer(part->distance, bytes, p->length, &sent, &sent);
    part->last = wtr_merge_events(5, e + DIAGONAL, e + PIVOT_ROWS, e + PIVOT_COLUMNS, e + REST, &sent);
    wtr_release_event_array(KERNELS, e);
    wtr_release_event(sent);
}

static void run(struct part *part, const struct problem *p, int kernel, size_t width, size_t height, uint64_t pivot) {
    wtr_run_kernel(part->kernels[kernel], 2, (size_t[]){width, height}, (size_t[]){p->block, p->block}, &part->last, &part->last, 4,
                   WTR_BUF(part->distance), WTR_ARG(p->n), WTR_ARG(part->first), WTR_ARG(pivot));
}

/* Rows go to the others by way of the host's memory; the runtime sends them from device to devices. */
static void turn(struct part *parts, unsigned devices, struct problem *p, uint64_t pivot) {
    const size_t start = pivot * p->n, bytes = p->block * p->n * sizeof(uint32_t);
    struct part *owner = parts;
    while (pivot >= owner->first + owner->rows) owner++;
    run(owner, p, DIAGONAL, p->block, p->block, pivot);
    run(owner, p, PIVOT_ROWS, p->n, p->block, pivot);
    if (devices > 1) wtr_read_buffer_at(owner->distance, start * sizeof(uint32_t), bytes, p->distance + start, &owner->last, &owner->last);
    for (struct part *to = parts; to < parts + devices; to++) {
        if (to == owner) continue;
        wtr_event *both = wtr_merge_events(2, &owner->last, &to->last);
        wtr_write_buffer_at(to->distance, start * sizeof(uint32_t), bytes, p->distance + start, &both, &to->last);
        wtr_release_event(both);
    }
    for (unsigned i = 0; i < devices; i++) {
        run(parts + i, p, PIVOT_COLUMNS, p->block, parts[i].rows, pivot);
        run(parts + i, p, REST, p->n, parts[i].rows, pivot);
    }
}

static void finish(struct part *part, struct problem *p, wtr_event **all_ran) {
    const size_t start = part->first * p->n, count = part->rows * p->n;
    wtr_event *freed = NULL;
    for (int i = 0; i < KERNELS; i++) wtr_release_kernel(part->kernels[i], &part->last, &freed);
    wtr_read_buffer_at(part->distance, start * sizeof(uint32_t), count * sizeof(uint32_t), p->distance + start, all_ran, &part->last);
    wtr_release_buffer(part->distance, &part->last, &freed);
    wtr_release_event(freed);
}

void host_solve(const struct options *options, struct problem *p) {
    const unsigned devices = (unsigned)wtr_get_num_devices();
    size_t rows[devices], first = 0;
    struct part parts[devices];
    wtr_event **last[devices], *all_ran;
    wtr_partition(p->n, p->block, devices, options->weights, rows);
    for (unsigned i = 0; i < devices; first += rows[i++]) {
        parts[i] = (struct part){.first = first, .rows = rows[i]};
        begin(parts + i, wtr_get_device("SELECT POS %u", i + 1), options, p);
        last[i] = &parts[i].last;
    }
    for (uint64_t pivot = 0; pivot < p->n; pivot += p->block) turn(parts, devices, p, pivot);
    all_ran = wtr_merge_events_v(devices, last); /* until then, rows under way are where the result will be */
    for (unsigned i = 0; i < devices; i++) finish(parts + i, p, &all_ran);
    wtr_wait_for_events_v(devices, last);
    for (unsigned i = 0; i < devices; i++) wtr_release_event(parts[i].last);
    wtr_release_event(all_ran);
}

void host_stop(void) {
    wtr_release_devices();
}
