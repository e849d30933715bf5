/* Heat in a plate: each inner point becomes the mean of its four neighbours (Jacobi). A device has
 * a slab of rows between two ghost rows, which are copies of its neighbours' edges; work-groups
 * have a band of it each. A work-group is one work-item: on a CPU that is a core, and what it can
 * do at once are the lanes of its vectors.
 *
 * `heat` does one step of a band; both versions use it. The host's version runs the kernel
 * `one_step` for each step, and moves the edges between steps. The device's version is the kernel
 * `all_steps`: it stays for all steps, and moves the edges itself. */
#include <ggas.h>

#pragma OPENCL FP_CONTRACT OFF /* so that both versions compute the same bits */

static void heat_row(global const float *here, global float *to, const ulong columns) {
    global const float *above = here - columns, *below = here + columns;
    ulong c = 1;
    for (; c + 16 < columns; c += 16) {
        const float16 vertical = vload16(0, above + c) + vload16(0, below + c);
        const float16 horizontal = vload16(0, here + c - 1) + vload16(0, here + c + 1);
        vstore16(0.25f * (vertical + horizontal), 0, to + c);
    }
    for (; c + 1 < columns; c++)
        to[c] = 0.25f * ((above[c] + below[c]) + (here[c - 1] + here[c + 1]));
}

/* Rows first to last, both included; row 0 is the upper ghost row. */
static void heat(global const float *old, global float *new, const ulong columns, const ulong first,
                 const ulong last) {
    for (ulong row = first; row <= last; row++)
        heat_row(old + row * columns, new + row *columns, columns);
}

/* The rows of one band. */
static ulong band_begin(const ulong rows, const ulong band, const ulong bands) {
    return 1 + rows * band / bands;
}

kernel void one_step(global const float *old, global float *new, const ulong rows,
                     const ulong columns) {
    const ulong band = get_group_id(0), bands = get_num_groups(0);
    heat(old, new, columns, band_begin(rows, band, bands), band_begin(rows, band + 1, bands) - 1);
}

static void copy_row(global const float *from, global float *to, const ulong columns) {
    ulong c = 0;
    for (; c + 16 <= columns; c += 16) vstore16(vload16(0, from + c), 0, to + c);
    for (; c < columns; c++) to[c] = from[c];
}

/* What lies in each device's part of the heap, in bytes: of the rows only those that are exchanged,
 * then one line of 64 bytes for each signal. The neighbours' edges arrive in turns at two places,
 * so that one is read while the next one comes. A band is signalled by the one above it and by the
 * one below it, and tells how it ended. */
#define ABOVE(which) ((which) * line_bytes)
#define BELOW(which) ((2 + (which)) * line_bytes)
#define OWN_FIRST (4 * line_bytes)
#define OWN_LAST (5 * line_bytes)
#define FROM_ABOVE(band) (6 * line_bytes + (3 * (band)) * 64)
#define FROM_BELOW(band) (6 * line_bytes + (3 * (band) + 1) * 64)
#define STATUS(band) (6 * line_bytes + (3 * (band) + 2) * 64)

/* `epoch` is how many steps all launches before have done: signals only grow. */
kernel void all_steps(global ggas_heap_t *heap, global float *grid0, global float *grid1,
                      const ulong total_rows, const ulong columns, const ulong steps,
                      const ulong epoch) {
    ggas_t g = ggas_open(heap);
    const uint me = ggas_my_pe(g), pes = ggas_n_pes(g);
    const ulong rows =
        total_rows / pes + (me < total_rows % pes); /* extra rows go to the first ones */
    const ulong row_bytes = columns * sizeof(float), line_bytes = (row_bytes + 63) / 64 * 64;
    const ulong band = get_group_id(0), bands = get_num_groups(0);
    const ulong first = band_begin(rows, band, bands), last = band_begin(rows, band + 1, bands) - 1;
    const int is_first = band == 0, is_last = band + 1 == bands, has_above = !is_first || me > 0,
              has_below = !is_last || me + 1 < pes;
    global float *own_first = (global float *)ggas_ptr(g, OWN_FIRST, me),
                 *own_last = (global float *)ggas_ptr(g, OWN_LAST, me);
    int status = GGAS_OK;

    for (ulong s = 1; s <= steps && status == GGAS_OK; s++) {
        global const float *old = s % 2 ? grid0 : grid1;
        global float *new = s % 2 ? grid1 : grid0;
        /* The edges first: they are on their way while the rest is computed. Whoever gets a signal
         * knows also that the sender has used what it had got before: its place may be overwritten.
         */
        heat(old, new, columns, first, first);
        if (last > first) heat(old, new, columns, last, last);
        if (!is_first)
            ggas_signal(g, FROM_BELOW(band - 1), epoch + s, me);
        else if (me > 0) {
            copy_row(new + first *columns, own_first, columns);
            ggas_put_signal(g, BELOW(s % 2), OWN_FIRST, row_bytes, FROM_BELOW(bands - 1), epoch + s,
                            me - 1);
        }
        if (!is_last)
            ggas_signal(g, FROM_ABOVE(band + 1), epoch + s, me);
        else if (me + 1 < pes) {
            copy_row(new + last *columns, own_last, columns);
            ggas_put_signal(g, ABOVE(s % 2), OWN_LAST, row_bytes, FROM_ABOVE(0), epoch + s, me + 1);
        }
        if (last > first) heat(old, new, columns, first + 1, last - 1);
        if (has_above) status = ggas_wait_until(g, FROM_ABOVE(band), GGAS_CMP_GE, epoch + s);
        if (has_below && status == GGAS_OK)
            status = ggas_wait_until(g, FROM_BELOW(band), GGAS_CMP_GE, epoch + s);
        if (status != GGAS_OK) break;
        if (is_first && has_above)
            copy_row((global const float *)ggas_ptr(g, ABOVE(s % 2), me), new, columns);
        if (is_last && has_below)
            copy_row((global const float *)ggas_ptr(g, BELOW(s % 2), me),
                     new + (rows + 1) * columns, columns);
    }
    *(global int *)ggas_ptr(g, STATUS(band), me) = status;
}
