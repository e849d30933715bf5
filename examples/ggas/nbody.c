/* Bodies that attract each other: the host's part of it. */
#include "app.h"

#include <math.h>
#include <string.h>

const char *const app_name = "nbody";
enum { BODIES, STEPS };
const struct setting app_settings[] = {
    {"bodies", "bodies", 1024},
    {"steps", "steps of time", 20},
    {0},
};

#define TIME_STEP 0.01f
#define SOFTENING 0.01f /* the square of the distance that is added to all */
#define TOLERANCE 1e-5  /* relative to the largest position */
/* Bodies that meet closely make large differences of small ones; until then the difference is some
 * 1e-6. */
const uint64_t app_checked_steps_max = 40;

struct body_vector {
    float x, y, z, w; /* w: the mass in positions, 0 in velocities */
};

static struct {
    uint64_t bodies, steps, epoch;
    unsigned pes;
    size_t groups, all_bytes;
    uint64_t first[PES_MAX], count[PES_MAX];
    struct body_vector *position, *velocity, *result, *serial;
    float time_step, softening;
    wtr_heap *heap;
    wtr_kernel *step[PES_MAX], *all_steps[PES_MAX];
    wtr_buffer *positions[PES_MAX][2], *velocities[PES_MAX];
} all;

static void make_bodies(void) {
    all.position = allocate(all.bodies, sizeof *all.position);
    all.velocity = allocate(all.bodies, sizeof *all.velocity);
    all.result = allocate(all.bodies, sizeof *all.result);
    for (uint64_t i = 0; i < all.bodies; i++) {
        /* The masses add up to about 1, so that the pull does not grow with the number of bodies.
         */
        const float mass = (0.5f + random_unit(4, i)) / (float)all.bodies;
        all.position[i] = (struct body_vector){random_unit(1, i) - 0.5f, random_unit(2, i) - 0.5f,
                                               random_unit(3, i) - 0.5f, mass};
        all.velocity[i] = (struct body_vector){random_unit(5, i) - 0.5f, random_unit(6, i) - 0.5f,
                                               random_unit(7, i) - 0.5f, 0};
    }
}

void app_create(const struct options *options, unsigned pes, wtr_device *const *devices) {
    all.bodies = options->value[BODIES];
    all.steps = options->value[STEPS];
    all.pes = pes;
    all.groups = options->groups;
    all.time_step = TIME_STEP;
    all.softening = SOFTENING;
    all.all_bytes = all.bodies * sizeof(struct body_vector);
    if (all.bodies / pes < all.groups)
        fail("%llu bodies are too few for %u devices with %zu work-groups",
             (unsigned long long)all.bodies, pes, all.groups);
    make_bodies();
    wtr_heap_options heap = {
        .size = sizeof heap, .timeout_ms = options->timeout_ms, .force_proxy = options->proxy};
    const size_t signals = (pes + 1) * all.groups * LINE_BYTES;
    all.heap = wtr_create_heap(pes, devices, 3 * all.all_bytes + signals, &heap, NULL);
    for (unsigned i = 0; i < pes; i++) {
        all.first[i] = i == 0 ? 0 : all.first[i - 1] + all.count[i - 1];
        all.count[i] = share_of(all.bodies, i, pes);
        all.step[i] =
            wtr_create_kernel(devices[i], options->kernel, "one_step", NULL, WTR_SOURCE, NULL);
        all.all_steps[i] =
            wtr_create_kernel(devices[i], options->kernel, "all_steps", NULL, WTR_SOURCE, NULL);
        all.velocities[i] = wtr_create_buffer(devices[i], WTR_MEM_READ_WRITE, all.all_bytes, NULL);
        for (int k = 0; k < 2; k++)
            all.positions[i][k] =
                wtr_create_buffer(devices[i], WTR_MEM_READ_WRITE, all.all_bytes, NULL);
    }
}

void app_set_steps(uint64_t steps) { all.steps = steps; }

wtr_heap *app_heap(void) { return all.heap; }

/* Both positions: of the second only the masses would be needed, which no step moves. */
void app_fill_host(void) {
    for (unsigned i = 0; i < all.pes; i++) {
        wtr_write_buffer(all.velocities[i], all.all_bytes, all.velocity, NULL, NULL);
        for (int k = 0; k < 2; k++)
            wtr_write_buffer(all.positions[i][k], all.all_bytes, all.position, NULL, NULL);
    }
}

void app_fill_device(void) {
    for (unsigned i = 0; i < all.pes; i++) {
        wtr_buffer *part = wtr_heap_part(all.heap, i);
        for (size_t k = 0; k < 2; k++)
            wtr_write_buffer_at(part, k * all.all_bytes, all.all_bytes, all.position, NULL, NULL);
        wtr_write_buffer_at(part, 2 * all.all_bytes, all.all_bytes, all.velocity, NULL, NULL);
    }
}

/* Brings the new positions of all devices to one of them, once its step, and so the last that read
 * what they overwrite, has ended. */
static wtr_event *gather(unsigned to, int which, wtr_event **ran) {
    wtr_event *arrived[PES_MAX] = {0}, **needed[PES_MAX];
    for (unsigned i = 0; i < all.pes; i++) {
        const size_t at = all.first[i] * sizeof(struct body_vector),
                     bytes = all.count[i] * sizeof(struct body_vector);
        needed[i] = &ran[to];
        if (i == to) continue;
        wtr_event *both = wtr_merge_events(2, &ran[i], &ran[to]);
        wtr_copy_buffer(all.positions[i][which], at, all.positions[to][which], at, bytes, &both,
                        &arrived[i]);
        wtr_release_event(both);
        needed[i] = &arrived[i];
    }
    wtr_event *ready = wtr_merge_events_v(all.pes, needed);
    for (unsigned i = 0; i < all.pes; i++)
        if (arrived[i]) wtr_release_event(arrived[i]);
    return ready;
}

/* Nothing is waited for but the end: events order the kernels of all steps and what moves between
 * them. */
void app_run_host(void) {
    const size_t local = 1;
    wtr_event *ran[PES_MAX] = {0}, *ready[PES_MAX] = {0};
    for (uint64_t s = 1; s <= all.steps; s++) {
        const int is = (int)(s % 2);
        for (unsigned i = 0; i < all.pes; i++) {
            wtr_event *now = NULL;
            wtr_run_kernel(all.step[i], 1, &all.groups, &local, ready[i] ? &ready[i] : NULL, &now,
                           8, WTR_BUF(all.positions[i][!is]), WTR_BUF(all.velocities[i]),
                           WTR_BUF(all.positions[i][is]), WTR_ARG(all.bodies),
                           WTR_ARG(all.first[i]), WTR_ARG(all.count[i]), WTR_ARG(all.time_step),
                           WTR_ARG(all.softening));
            if (ran[i]) wtr_release_event(ran[i]);
            ran[i] = now;
        }
        for (unsigned i = 0; i < all.pes; i++) {
            wtr_event *next = gather(i, is, ran);
            if (ready[i]) wtr_release_event(ready[i]);
            ready[i] = next;
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
    wtr_run_collective(all.heap, all.all_steps, 1, &all.groups, &local, NULL, NULL, 6,
                       WTR_HEAP(all.heap), WTR_ARG(all.bodies), WTR_ARG(all.steps),
                       WTR_ARG(all.epoch), WTR_ARG(all.time_step), WTR_ARG(all.softening));
    if (wtr_last_error()) return 1;
    all.epoch += all.steps;
    const size_t at = 3 * all.all_bytes + all.pes * all.groups * LINE_BYTES;
    for (unsigned i = 0; i < all.pes; i++) {
        char lines[all.groups * LINE_BYTES];
        wtr_read_buffer_at(wtr_heap_part(all.heap, i), at, sizeof lines, lines, NULL, NULL);
        for (size_t share = 0; share < all.groups; share++) {
            int status;
            memcpy(&status, lines + share * LINE_BYTES, sizeof status);
            if (status != 0) return status;
        }
    }
    return 0;
}

/* The first device has all positions, as every one has. */
const float *app_result_host(void) {
    wtr_read_buffer(all.positions[0][all.steps % 2], all.all_bytes, all.result, NULL, NULL);
    return &all.result->x;
}

const float *app_result_device(void) {
    wtr_read_buffer_at(wtr_heap_part(all.heap, all.pes - 1), all.steps % 2 * all.all_bytes,
                       all.all_bytes, all.result, NULL, NULL);
    return &all.result->x;
}

size_t app_result_count(void) { return all.bodies * 4; }

struct precise {
    double x, y, z;
};

static struct precise pull_on(const struct precise *position, uint64_t body) {
    struct precise pull = {0};
    for (uint64_t i = 0; i < all.bodies; i++) {
        const double x = position[i].x - position[body].x, y = position[i].y - position[body].y,
                     z = position[i].z - position[body].z;
        const double square = x * x + y * y + z * z + all.softening,
                     strength = all.position[i].w / (square * sqrt(square));
        pull.x += strength * x;
        pull.y += strength * y;
        pull.z += strength * z;
    }
    return pull;
}

static void compute_serially(void) {
    struct precise *at = allocate(all.bodies, sizeof *at),
                   *speed = allocate(all.bodies, sizeof *speed);
    for (uint64_t i = 0; i < all.bodies; i++) {
        at[i] = (struct precise){all.position[i].x, all.position[i].y, all.position[i].z};
        speed[i] = (struct precise){all.velocity[i].x, all.velocity[i].y, all.velocity[i].z};
    }
    for (uint64_t s = 0; s < all.steps; s++) {
        for (uint64_t i = 0; i < all.bodies; i++) {
            const struct precise pull = pull_on(at, i);
            speed[i] = (struct precise){speed[i].x + all.time_step * pull.x,
                                        speed[i].y + all.time_step * pull.y,
                                        speed[i].z + all.time_step * pull.z};
        }
        for (uint64_t i = 0; i < all.bodies; i++) {
            at[i].x += all.time_step * speed[i].x;
            at[i].y += all.time_step * speed[i].y;
            at[i].z += all.time_step * speed[i].z;
        }
    }
    all.serial = allocate(all.bodies, sizeof *all.serial);
    for (uint64_t i = 0; i < all.bodies; i++)
        all.serial[i] =
            (struct body_vector){(float)at[i].x, (float)at[i].y, (float)at[i].z, all.position[i].w};
    free(at);
    free(speed);
}

double app_error(const float *result) {
    if (!all.serial) compute_serially();
    const float *serial = &all.serial->x;
    double worst = 0, largest = 0;
    for (size_t i = 0; i < app_result_count(); i++) {
        const double off = fabs((double)result[i] - serial[i]);
        worst = off <= worst ? worst : isnan(off) ? INFINITY : off;
        largest = fmax(largest, fabs(serial[i]));
    }
    return worst / largest / TOLERANCE;
}

void app_release(void) {
    for (unsigned i = 0; i < all.pes; i++) {
        wtr_release_kernel(all.step[i], NULL, NULL);
        wtr_release_kernel(all.all_steps[i], NULL, NULL);
        wtr_release_buffer(all.velocities[i], NULL, NULL);
        for (int k = 0; k < 2; k++) wtr_release_buffer(all.positions[i][k], NULL, NULL);
    }
    wtr_release_heap(all.heap, NULL, NULL);
    free(all.position);
    free(all.velocity);
    free(all.result);
    free(all.serial);
}
