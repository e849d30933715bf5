/* Heat in a plate whose edges keep their temperatures, on slabs of rows: the host's part of it. */
#include "app.h"

#include <math.h>
#include <string.h>

const char *const app_name = "stencil";
enum { ROWS, COLUMNS, STEPS };
const struct setting app_settings[] = {
    {"rows", "rows of inner points", 512},
    {"columns", "columns, with the two at the edges", 512},
    {"steps", "steps", 200},
    {0},
};

#define TOLERANCE 1e-5 /* of a temperature, which is 0 to 1: some hundred roundings of 6e-8 */
#define EDGES 6
#define LINES_PER_BAND 3
const uint64_t app_checked_steps_max =
    UINT64_MAX; /* means of means: what was rounded does not grow */

static struct {
    uint64_t rows, columns, steps, epoch;
    unsigned pes;
    size_t groups;
    wtr_device *device[PES_MAX];
    uint64_t first[PES_MAX], count[PES_MAX];
    float *input, *result, *serial; /* (rows + 2) * columns */
    wtr_heap *heap;
    wtr_kernel *step[PES_MAX], *all_steps[PES_MAX];
    wtr_buffer *grid[2][PES_MAX];
} all;

/* The part of the heap that edges have, before the signals: see stencil.cl. */
static size_t edges_bytes(void) {
    return EDGES * ((all.columns * sizeof(float) + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES);
}

/* A device's slab with its ghost rows: from the row above the first one on. */
static const float *slab(unsigned i) { return all.input + all.first[i] * all.columns; }

static size_t slab_bytes(unsigned i) { return (all.count[i] + 2) * all.columns * sizeof(float); }

void app_create(const struct options *options, unsigned pes, wtr_device *const *devices) {
    all.rows = options->value[ROWS];
    all.columns = options->value[COLUMNS];
    all.steps = options->value[STEPS];
    all.pes = pes;
    all.groups = options->groups;
    if (all.rows / pes < all.groups && !options->refuse)
        fail("%llu rows are too few for %u devices with %zu work-groups",
             (unsigned long long)all.rows, pes, all.groups);
    if (all.columns < 3) fail("3 columns are the least");
    const size_t points = (all.rows + 2) * all.columns;
    all.input = allocate(points, sizeof(float));
    all.result = allocate(points, sizeof(float));
    for (uint64_t i = 0; i < points; i++) all.input[i] = random_unit(1, i);
    wtr_heap_options heap = {
        .size = sizeof heap, .timeout_ms = options->timeout_ms, .force_proxy = options->proxy};
    all.heap = wtr_create_heap(
        pes, devices, edges_bytes() + all.groups * LINES_PER_BAND * LINE_BYTES, &heap, NULL);
    for (unsigned i = 0; i < pes; i++) {
        all.first[i] = i == 0 ? 0 : all.first[i - 1] + all.count[i - 1];
        all.count[i] = share_of(all.rows, i, pes);
        all.step[i] =
            wtr_create_kernel(devices[i], options->kernel, "one_step", NULL, WTR_SOURCE, NULL);
        all.all_steps[i] =
            wtr_create_kernel(devices[i], options->kernel, "all_steps", NULL, WTR_SOURCE, NULL);
        for (int k = 0; k < 2; k++)
            all.grid[k][i] = wtr_create_buffer(devices[i], WTR_MEM_READ_WRITE, slab_bytes(i), NULL);
    }
}

void app_set_steps(uint64_t steps) { all.steps = steps; }

wtr_heap *app_heap(void) { return all.heap; }

void app_fill_host(void) {
    for (unsigned i = 0; i < all.pes; i++)
        for (int k = 0; k < 2; k++)
            wtr_write_buffer(all.grid[k][i], slab_bytes(i), slab(i), NULL, NULL);
}

/* The same buffers: only what is exchanged lies in the heap. */
void app_fill_device(void) { app_fill_host(); }

/* Brings an edge of one device, once it is computed, to its neighbour's ghost row. `*ready` of the
 * neighbour waits for it. */
static void move_edge(unsigned from, unsigned to, int which, wtr_event **ran, wtr_event **arrived) {
    const size_t row_bytes = all.columns * sizeof(float);
    const size_t edge = from > to ? row_bytes : all.count[from] * row_bytes,
                 ghost = from > to ? (all.count[to] + 1) * row_bytes : 0;
    /* The neighbour's last step has read what is overwritten, or will never read it. */
    wtr_event *both = wtr_merge_events(2, &ran[from], &ran[to]);
    wtr_copy_buffer(all.grid[which][from], edge, all.grid[which][to], ghost, row_bytes, &both,
                    arrived);
    wtr_release_event(both);
}

/* Nothing is waited for but the end: events order the kernels of all steps and the edges between
 * them. */
void app_run_host(void) {
    const size_t local = 1;
    wtr_event *ran[PES_MAX] = {0}, *ready[PES_MAX] = {0};
    for (uint64_t s = 1; s <= all.steps; s++) {
        const int is = (int)(s % 2);
        for (unsigned i = 0; i < all.pes; i++) {
            wtr_event *now = NULL;
            wtr_run_kernel(all.step[i], 1, &all.groups, &local, ready[i] ? &ready[i] : NULL, &now,
                           4, WTR_BUF(all.grid[!is][i]), WTR_BUF(all.grid[is][i]),
                           WTR_ARG(all.count[i]), WTR_ARG(all.columns));
            if (ran[i]) wtr_release_event(ran[i]);
            ran[i] = now;
        }
        for (unsigned i = 0; i < all.pes; i++) {
            wtr_event *above = NULL, *below = NULL;
            if (i > 0) move_edge(i - 1, i, is, ran, &above);
            if (i + 1 < all.pes) move_edge(i + 1, i, is, ran, &below);
            wtr_event **needed[] = {&ran[i], &above, &below};
            if (!above) needed[1] = needed[2];
            wtr_event *next = wtr_merge_events_v(1 + (above != NULL) + (below != NULL), needed);
            if (ready[i]) wtr_release_event(ready[i]);
            ready[i] = next;
            if (above) wtr_release_event(above);
            if (below) wtr_release_event(below);
        }
    }
    for (unsigned i = 0; i < all.pes; i++) {
        wtr_wait_for_events(1, &ready[i]);
        wtr_release_event(ready[i]);
        wtr_release_event(ran[i]);
    }
}

int app_run_device(void) {
    const size_t local = 1;
    wtr_run_collective(all.heap, all.all_steps, 1, &all.groups, &local, NULL, NULL, 7,
                       WTR_HEAP(all.heap), WTR_BUFS(all.grid[0]), WTR_BUFS(all.grid[1]),
                       WTR_ARG(all.rows), WTR_ARG(all.columns), WTR_ARG(all.steps),
                       WTR_ARG(all.epoch));
    if (wtr_last_error()) return 1;
    all.epoch += all.steps;
    for (unsigned i = 0; i < all.pes; i++) {
        char lines[all.groups * LINES_PER_BAND * LINE_BYTES];
        wtr_read_buffer_at(wtr_heap_part(all.heap, i), edges_bytes(), sizeof lines, lines, NULL,
                           NULL);
        for (size_t band = 0; band < all.groups; band++) {
            int status;
            memcpy(&status, lines + (LINES_PER_BAND * band + 2) * LINE_BYTES, sizeof status);
            if (status != 0) return status;
        }
    }
    return 0;
}

/* All rows: those at the edges are the input's, and each device has its own. */
const float *app_result_host(void) {
    memcpy(all.result, all.input, app_result_count() * sizeof(float));
    const size_t row_bytes = all.columns * sizeof(float);
    for (unsigned i = 0; i < all.pes; i++)
        wtr_read_buffer_at(all.grid[all.steps % 2][i], row_bytes, all.count[i] * row_bytes,
                           all.result + (all.first[i] + 1) * all.columns, NULL, NULL);
    return all.result;
}

const float *app_result_device(void) { return app_result_host(); }

size_t app_result_count(void) { return (all.rows + 2) * all.columns; }

static void compute_serially(void) {
    double *grid[2] = {allocate(app_result_count(), sizeof(double)),
                       allocate(app_result_count(), sizeof(double))};
    for (size_t i = 0; i < app_result_count(); i++) grid[0][i] = grid[1][i] = all.input[i];
    for (uint64_t s = 1; s <= all.steps; s++) {
        const double *old = grid[(s - 1) % 2];
        double *new = grid[s % 2];
        for (uint64_t row = 1; row <= all.rows; row++)
            for (uint64_t c = 1; c + 1 < all.columns; c++) {
                const size_t at = row * all.columns + c;
                new[at] = 0.25 * (old[at - all.columns] + old[at + all.columns] + old[at - 1] +
                                  old[at + 1]);
            }
    }
    all.serial = allocate(app_result_count(), sizeof(float));
    for (size_t i = 0; i < app_result_count(); i++) all.serial[i] = (float)grid[all.steps % 2][i];
    free(grid[0]);
    free(grid[1]);
}

double app_error(const float *result) {
    if (!all.serial) compute_serially();
    double worst = 0;
    for (size_t i = 0; i < app_result_count(); i++) {
        const double off = fabs((double)result[i] - all.serial[i]);
        worst = off <= worst ? worst : isnan(off) ? INFINITY : off;
    }
    return worst / TOLERANCE;
}

void app_release(void) {
    for (unsigned i = 0; i < all.pes; i++) {
        wtr_release_kernel(all.step[i], NULL, NULL);
        wtr_release_kernel(all.all_steps[i], NULL, NULL);
        for (int k = 0; k < 2; k++) wtr_release_buffer(all.grid[k][i], NULL, NULL);
    }
    wtr_release_heap(all.heap, NULL, NULL);
    free(all.input);
    free(all.result);
    free(all.serial);
}
