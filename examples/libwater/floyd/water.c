/* Shortest paths on all devices, with libWater: each computes some of the matrix's rows. In each
 * turn the owner of the pivots' rows sends them to all others. The order of the pivots does not
 * matter, so the owners take turns, and each prepares its rows while the others still work with
 * those before. */
#include <wtr_ext.h>

#include "floyd.h"

const char *const host_name = "water";

enum { DIAGONAL, PIVOT_ROWS, PIVOT_COLUMNS, REST, KERNELS };
static const char *const kernel_names[KERNELS] = {"diagonal", "pivot_rows", "pivot_columns",
                                                  "rest"};

/* What one device does. */
struct part {
    uint64_t first, rows;
    wtr_kernel *kernels[KERNELS];
    wtr_buffer *distance;
    wtr_event *made; /* its buffer */
    wtr_event *last; /* its last kernel: the next one waits for it */
    wtr_event *here; /* the turn's pivots: they have arrived, or its own were sent */
};

/* The pivots of one turn. */
struct turn {
    struct part *owner;
    uint64_t pivot;
};

unsigned host_start(const struct options *options) {
    wtr_init_devices_v(options->devices);
    return (unsigned)wtr_get_num_devices();
}

static void begin(struct part *part, wtr_device *device, const struct options *options,
                  const struct problem *p) {
    const size_t start = part->first * p->n, count = part->rows * p->n;
    wtr_event *e[KERNELS] = {0}, *sent = NULL;
    for (int i = 0; i < KERNELS; i++)
        part->kernels[i] = wtr_create_kernel(device, options->kernel, kernel_names[i],
                                             p->build_options, WTR_SOURCE, e + i);
    part->distance =
        wtr_create_buffer(device, WTR_MEM_READ_WRITE, p->n * p->n * sizeof(uint32_t), &part->made);
    wtr_write_buffer_at(part->distance, start * sizeof(uint32_t), count * sizeof(uint32_t),
                        p->length + start, &part->made, &sent);
    part->last =
        wtr_merge_events(5, e + DIAGONAL, e + PIVOT_ROWS, e + PIVOT_COLUMNS, e + REST, &sent);
    wtr_release_event_array(KERNELS, e);
    wtr_release_event(sent);
}

/* Columns and rows of the matrix from `first` on, but not the rows `done`. */
static void run(struct part *part, const struct problem *p, int kernel, size_t columns,
                uint64_t first, size_t rows, uint64_t pivot, uint64_t done) {
    wtr_run_kernel(part->kernels[kernel], 2, (size_t[]){columns, rows},
                   (size_t[]){p->block, p->block}, &part->last, &part->last, 5,
                   WTR_BUF(part->distance), WTR_ARG(p->n), WTR_ARG(first), WTR_ARG(pivot),
                   WTR_ARG(done));
}

static void update(struct part *part, const struct problem *p, uint64_t first, size_t rows,
                   uint64_t pivot, uint64_t done) {
    run(part, p, PIVOT_COLUMNS, p->block, first, rows, pivot, done);
    run(part, p, REST, p->n, first, rows, pivot, done);
}

/* Computes the pivots' rows, and sends them to all others by way of `rows`; the runtime sends them
 * from device to devices. */
static void prepare(struct turn turn, struct part *parts, unsigned devices, const struct problem *p,
                    uint32_t *rows) {
    const size_t offset = turn.pivot * p->n * sizeof(uint32_t),
                 bytes = p->block * p->n * sizeof(uint32_t);
    struct part *owner = turn.owner;
    run(owner, p, DIAGONAL, p->block, turn.pivot, p->block, turn.pivot, p->n);
    run(owner, p, PIVOT_ROWS, p->n, turn.pivot, p->block, turn.pivot, p->n);
    wtr_read_buffer_at(owner->distance, offset, bytes, rows, &owner->last, &owner->here);
    for (struct part *to = parts; to < parts + devices; to++) {
        if (to == owner) continue;
        wtr_event *both = wtr_merge_events(2, &owner->here, &to->made);
        wtr_write_buffer_at(to->distance, offset, bytes, rows, &both, &to->here);
        wtr_release_event(both);
    }
}

static void finish(struct part *part, struct problem *p) {
    const size_t start = part->first * p->n, count = part->rows * p->n;
    wtr_event *freed = NULL;
    for (int i = 0; i < KERNELS; i++) wtr_release_kernel(part->kernels[i], &part->last, &freed);
    wtr_read_buffer_at(part->distance, start * sizeof(uint32_t), count * sizeof(uint32_t),
                       p->distance + start, &part->last, &part->last);
    wtr_release_buffer(part->distance, &part->last, &freed);
    wtr_release_event_array(3, (wtr_event *[]){part->made, part->here, freed});
}

void host_solve(const struct options *options, struct problem *p) {
    const unsigned devices = (unsigned)wtr_get_num_devices();
    const uint64_t turns = p->n / p->block;
    size_t counts[devices], first = 0;
    struct part parts[devices];
    struct turn *turn = allocate(turns, sizeof *turn);
    uint32_t *rows = allocate(
        p->n * p->n, sizeof *rows); /* each turn has its own, so none waits for those before */
    wtr_event **last[devices];
    wtr_partition(p->n, p->block, devices, options->weights, counts);
    for (unsigned i = 0; i < devices; first += counts[i++]) {
        parts[i] = (struct part){.first = first, .rows = counts[i]};
        begin(parts + i, wtr_get_device("SELECT POS %u", i + 1), options, p);
        last[i] = &parts[i].last;
    }
    for (uint64_t t = 0, row = 0; t < turns; row += p->block)
        for (unsigned i = 0; i < devices; i++)
            if (row < parts[i].rows) turn[t++] = (struct turn){parts + i, parts[i].first + row};
    prepare(turn[0], parts, devices, p, rows);
    for (uint64_t t = 0; t < turns; t++) {
        struct turn next = t + 1 < turns ? turn[t + 1] : (struct turn){NULL, p->n};
        for (struct part *part = parts; part < parts + devices; part++) {
            wtr_event *both = wtr_merge_events(2, &part->last, &part->here);
            wtr_release_event(part->last);
            part->last = both;
        }
        if (next.owner) {
            update(next.owner, p, next.pivot, p->block, turn[t].pivot, p->n);
            prepare(next, parts, devices, p, rows + (t + 1) * p->block * p->n);
        }
        for (struct part *part = parts; part < parts + devices; part++)
            update(part, p, part->first, part->rows, turn[t].pivot, next.pivot);
    }
    for (unsigned i = 0; i < devices; i++) finish(parts + i, p);
    wtr_wait_for_events_v(devices, last);
    for (unsigned i = 0; i < devices; i++) wtr_release_event(parts[i].last);
    free(rows);
    free(turn);
}

void host_stop(void) { wtr_release_devices(); }
