/* Nearest neighbours on all devices, with libWater: the queries are split and the references go to
 * every device; or, with
 * --split-reference, the other way round, and the host merges what the devices found. */
#include <wtr_ext.h>

#include "knn.h"

const char *const host_name = "water";

unsigned host_start(const struct options *options) {
    wtr_init_devices_v(options->devices);
    return (unsigned)wtr_get_num_devices();
}

void host_solve(const struct options *options, struct problem *p) {
    enum {
        KERNEL,
        REFERENCE,
        QUERY,
        DISTANCE,
        INDEX,
        REFERENCE_SENT,
        QUERY_SENT,
        READY,
        RAN,
        FREED,
        EVENTS
    };
    const unsigned devices = (unsigned)wtr_get_num_devices();
    const size_t point = DIMENSIONS * sizeof(float);
    size_t parts[devices];
    uint64_t first = 0;
    wtr_event *done[2 * devices];
    wtr_partition(p->split_reference ? p->references : p->queries, 1, devices, options->weights,
                  parts);
    wtr_init_event_array(2 * devices, done);
    for (unsigned i = 0; i < devices; first += parts[i++]) {
        const uint64_t first_reference = p->split_reference ? first : 0,
                       first_query = p->split_reference ? 0 : first;
        const uint64_t references = p->split_reference ? parts[i] : p->references,
                       queries = p->split_reference ? p->queries : parts[i];
        const size_t results = queries * NEAREST,
                     place = p->split_reference ? i * results : first * NEAREST;
        wtr_event *e[EVENTS] = {0};
        wtr_device *device = wtr_get_device("SELECT POS %u", i + 1);
        wtr_kernel *kernel = wtr_create_kernel(device, options->kernel, "knn", BUILD_OPTIONS,
                                               WTR_SOURCE, e + KERNEL);
        wtr_buffer *reference =
            wtr_create_buffer(device, WTR_MEM_READ_ONLY, references * point, e + REFERENCE);
        wtr_buffer *query =
            wtr_create_buffer(device, WTR_MEM_READ_ONLY, queries * point, e + QUERY);
        wtr_buffer *distance =
            wtr_create_buffer(device, WTR_MEM_WRITE_ONLY, results * sizeof(float), e + DISTANCE);
        wtr_buffer *index =
            wtr_create_buffer(device, WTR_MEM_WRITE_ONLY, results * sizeof(uint32_t), e + INDEX);
        wtr_write_buffer(reference, references * point, p->reference + first_reference * DIMENSIONS,
                         e + REFERENCE, e + REFERENCE_SENT);
        wtr_write_buffer(query, queries * point, p->query + first_query * DIMENSIONS, e + QUERY,
                         e + QUERY_SENT);
        e[READY] = wtr_merge_events(5, e + KERNEL, e + REFERENCE_SENT, e + QUERY_SENT, e + DISTANCE,
                                    e + INDEX);
        wtr_run_kernel(kernel, 1, (size_t[]){round_up(queries, TILE)}, (size_t[]){TILE}, e + READY,
                       e + RAN, 7, WTR_BUF(reference), WTR_BUF(query), WTR_BUF(distance),
                       WTR_BUF(index), WTR_ARG(references), WTR_ARG(first_reference),
                       WTR_ARG(queries));
        wtr_read_buffer(distance, results * sizeof(float), p->distance + place, e + RAN,
                        done + 2 * i);
        wtr_read_buffer(index, results * sizeof(uint32_t), p->index + place, e + RAN,
                        done + 2 * i + 1);
        /* Nobody waits for these but wtr_release_devices(), so one event serves for all. */
        wtr_release_buffer(reference, e + RAN, e + FREED);
        wtr_release_buffer(query, e + RAN, e + FREED);
        wtr_release_buffer(distance, done + 2 * i, e + FREED);
        wtr_release_buffer(index, done + 2 * i + 1, e + FREED);
        wtr_release_kernel(kernel, e + RAN, e + FREED);
        wtr_release_event_array(EVENTS, e);
    }
    for (unsigned i = 0; i < 2 * devices; i++) wtr_wait_for_events(1, done + i);
    wtr_release_event_array(2 * devices, done);
    if (p->split_reference) knn_merge(p, devices);
}

void host_stop(void) { wtr_release_devices(); }
