/* Attracting bodies on all devices, with libWater: each moves some of them, and after each step
 * every device gets the new positions straight from the others. */
#include <wtr_ext.h>

#include "nbody.h"

const char *const host_name = "water";

/* What one device does. */
struct part {
    uint64_t first, count;
    wtr_kernel *kernel;
    wtr_buffer *position[2], *velocity[2]; /* before and after a step, in turns */
    wtr_event *ready;                      /* all it needs for its next step is there */
    wtr_event *ran;                        /* its last step */
};

unsigned host_start(const struct options *options) {
    wtr_init_devices_v(options->devices);
    return (unsigned)wtr_get_num_devices();
}

static void begin(struct part *part, wtr_device *device, const struct options *options,
                  const struct problem *p) {
    enum {
        KERNEL,
        POSITION,
        NEW_POSITION,
        VELOCITY,
        NEW_VELOCITY,
        POSITION_SENT,
        VELOCITY_SENT,
        EVENTS
    };
    const size_t bytes = p->bodies * sizeof(struct body_vector);
    wtr_event *e[EVENTS] = {0};
    part->kernel =
        wtr_create_kernel(device, options->kernel, "nbody", BUILD_OPTIONS, WTR_SOURCE, e + KERNEL);
    for (int i = 0; i < 2; i++) {
        part->position[i] = wtr_create_buffer(device, WTR_MEM_READ_WRITE, bytes, e + POSITION + i);
        part->velocity[i] = wtr_create_buffer(device, WTR_MEM_READ_WRITE, bytes, e + VELOCITY + i);
    }
    wtr_write_buffer(part->position[0], bytes, p->position, e + POSITION, e + POSITION_SENT);
    wtr_write_buffer(part->velocity[0], bytes, p->velocity, e + VELOCITY, e + VELOCITY_SENT);
    part->ready = wtr_merge_events(5, e + KERNEL, e + POSITION_SENT, e + VELOCITY_SENT,
                                   e + NEW_POSITION, e + NEW_VELOCITY);
    wtr_release_event_array(EVENTS, e);
}

static void move(struct part *part, const struct problem *p, int old) {
    wtr_run_kernel(part->kernel, 1, (size_t[]){round_up(part->count, TILE)}, (size_t[]){TILE},
                   &part->ready, &part->ran, 9, WTR_BUF(part->position[old]),
                   WTR_BUF(part->velocity[old]), WTR_BUF(part->position[!old]),
                   WTR_BUF(part->velocity[!old]), WTR_ARG(p->bodies), WTR_ARG(part->first),
                   WTR_ARG(part->count), WTR_ARG(p->time_step), WTR_ARG(p->softening));
}

/* Brings the new positions of all parts to one of them, once its step before the last, which read
 * what they overwrite, has ended. */
static void gather(struct part *to, const struct part *parts, unsigned devices, int new) {
    wtr_event *arrived[devices], **all[devices], *ready;
    for (unsigned i = 0; i < devices; i++) {
        const struct part *from = parts + i;
        const size_t start = from->first * sizeof(struct body_vector),
                     bytes = from->count * sizeof(struct body_vector);
        arrived[i] = wtr_merge_events(2, &from->ran, &to->ready);
        all[i] = arrived + i;
        if (from != to)
            wtr_copy_buffer(from->position[new], start, to->position[new], start, bytes,
                            arrived + i, arrived + i);
    }
    ready = wtr_merge_events_v(devices, all);
    wtr_release_event_array(devices, arrived);
    wtr_release_event(to->ready);
    to->ready = ready;
}

/* When all parts have ended: before, others may still copy from these buffers. */
static void release(struct part *part) {
    wtr_event *freed = NULL;
    for (int i = 0; i < 2; i++) {
        wtr_release_buffer(part->position[i], NULL, &freed);
        wtr_release_buffer(part->velocity[i], NULL, &freed);
    }
    wtr_release_kernel(part->kernel, NULL, &freed);
    wtr_release_event_array(3, (wtr_event *[]){part->ready, part->ran, freed});
}

void host_solve(const struct options *options, struct problem *p) {
    const unsigned devices = (unsigned)wtr_get_num_devices();
    const int last = (int)(p->steps % 2);
    size_t counts[devices], first = 0;
    struct part parts[devices];
    wtr_event *done[2 * devices];
    wtr_partition(p->bodies, 1, devices, options->weights, counts);
    wtr_init_event_array(2 * devices, done);
    for (unsigned i = 0; i < devices; first += counts[i++]) {
        parts[i] = (struct part){.first = first, .count = counts[i]};
        begin(parts + i, wtr_get_device("SELECT POS %u", i + 1), options, p);
    }
    for (uint64_t step = 0; step < p->steps; step++) {
        const int old = (int)(step % 2);
        for (unsigned i = 0; i < devices; i++) move(parts + i, p, old);
        for (unsigned i = 0; i < devices && step + 1 < p->steps; i++)
            gather(parts + i, parts, devices, !old);
    }
    for (unsigned i = 0; i < devices; i++) {
        const size_t start = parts[i].first * sizeof(struct body_vector),
                     bytes = parts[i].count * sizeof(struct body_vector);
        wtr_read_buffer_at(parts[i].position[last], start, bytes, p->new_position + parts[i].first,
                           &parts[i].ran, done + 2 * i);
        wtr_read_buffer_at(parts[i].velocity[last], start, bytes, p->new_velocity + parts[i].first,
                           &parts[i].ran, done + 2 * i + 1);
    }
    for (unsigned i = 0; i < 2 * devices; i++) wtr_wait_for_events(1, done + i);
    for (unsigned i = 0; i < devices; i++) release(parts + i);
    wtr_release_event_array(2 * devices, done);
}

void host_stop(void) { wtr_release_devices(); }
