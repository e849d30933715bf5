/* Input and check of the bodies. Up to SERIAL_MAX bodies all steps are computed again in double
 * precision. Beyond, that takes too long: after one step some bodies are; after more, the sum of
 * all momenta must be what it was. */
#include "nbody.h"

#include <math.h>
#include <string.h>

const char *const app_name = "nbody";
enum { SIZE, STEPS };
const struct setting app_settings[] = {
    {"size", "bodies", 4096, 600000, false},
    {"steps", "steps of time", 4, 10, false},
    {0},
};

#define SERIAL_MAX 4096
#define SAMPLES 64
#define POSITION_TOLERANCE                                                                      \
    1e-5 /* relative to the largest position: in the 4 steps of the default the pull makes some \
            1e-3 of it */
#define VELOCITY_TOLERANCE \
    1e-4 /* relative to the largest change of a velocity: all that the pull made */
#define MOMENTUM_TOLERANCE \
    1e-4 /* relative to the momenta that the steps moved from one body to another */

struct vector {
    double x, y, z;
};

struct problem *problem_create(const struct options *options) {
    struct problem *p = allocate(1, sizeof *p);
    p->bodies = options->value[SIZE];
    p->steps = options->value[STEPS];
    p->time_step = 0.01f;
    p->softening = 0.01f;
    p->position = allocate(p->bodies, sizeof *p->position);
    p->velocity = allocate(p->bodies, sizeof *p->velocity);
    p->new_position = allocate(p->bodies, sizeof *p->new_position);
    p->new_velocity = allocate(p->bodies, sizeof *p->new_velocity);
    for (uint64_t i = 0; i < p->bodies; i++) {
        /* The masses add up to about 1, so that the pull does not grow with the number of bodies.
         */
        const float mass = (0.5f + random_unit(4, i)) / (float)p->bodies;
        p->position[i] = (struct body_vector){random_unit(1, i) - 0.5f, random_unit(2, i) - 0.5f,
                                              random_unit(3, i) - 0.5f, mass};
        p->velocity[i] = (struct body_vector){random_unit(5, i) - 0.5f, random_unit(6, i) - 0.5f,
                                              random_unit(7, i) - 0.5f, 0};
    }
    return p;
}

void problem_forget(struct problem *p) {
    memset(p->new_position, 0xff, p->bodies * sizeof *p->new_position); /* not a number */
    memset(p->new_velocity, 0xff, p->bodies * sizeof *p->new_velocity);
}

static struct vector pull_on(const struct problem *p, const struct vector *position,
                             uint64_t body) {
    struct vector pull = {0};
    for (uint64_t i = 0; i < p->bodies; i++) {
        const double x = position[i].x - position[body].x, y = position[i].y - position[body].y,
                     z = position[i].z - position[body].z;
        const double square = x * x + y * y + z * z + p->softening,
                     strength = p->position[i].w / (square * sqrt(square));
        pull.x += strength * x;
        pull.y += strength * y;
        pull.z += strength * z;
    }
    return pull;
}

static struct vector widened(struct body_vector from) {
    return (struct vector){from.x, from.y, from.z};
}

static void add(struct vector *to, double factor, struct vector what) {
    to->x += factor * what.x;
    to->y += factor * what.y;
    to->z += factor * what.z;
}

static double distance(struct vector a, struct body_vector b) {
    return fmax(fabs(a.x - b.x), fmax(fabs(a.y - b.y), fabs(a.z - b.z)));
}

static double size_of(struct vector a) { return sqrt(a.x * a.x + a.y * a.y + a.z * a.z); }

/* The steps again, for every `stride`th body: all of them, or with one step some. */
static struct verdict compare(const struct problem *p, uint64_t stride) {
    struct vector *position = allocate(p->bodies, sizeof *position),
                  *velocity = allocate(p->bodies, sizeof *velocity);
    double worst_position = 0, worst_velocity = 0, largest_position = 0, largest_change = 0;
    uint64_t compared = 0;
    for (uint64_t i = 0; i < p->bodies; i++) {
        position[i] = widened(p->position[i]);
        velocity[i] = widened(p->velocity[i]);
    }
    for (uint64_t step = 0; step < p->steps; step++) {
        for (uint64_t i = 0; i < p->bodies; i += stride)
            add(velocity + i, p->time_step, pull_on(p, position, i));
        for (uint64_t i = 0; i < p->bodies; i += stride)
            add(position + i, p->time_step, velocity[i]);
    }
    for (uint64_t i = 0; i < p->bodies; i += stride, compared++) {
        const double position_off = distance(position[i], p->new_position[i]),
                     velocity_off = distance(velocity[i], p->new_velocity[i]);
        /* fmax() would pass over what is not a number. */
        worst_position = position_off <= worst_position ? worst_position
                         : isnan(position_off)          ? INFINITY
                                                        : position_off;
        worst_velocity = velocity_off <= worst_velocity ? worst_velocity
                         : isnan(velocity_off)          ? INFINITY
                                                        : velocity_off;
        largest_position = fmax(largest_position, size_of(position[i]));
        add(velocity + i, -1, widened(p->velocity[i]));
        largest_change = fmax(largest_change, size_of(velocity[i]));
    }
    free(position);
    free(velocity);
    worst_position /= largest_position;
    worst_velocity /= largest_change;
    return verdict(
        worst_position <= POSITION_TOLERANCE && worst_velocity <= VELOCITY_TOLERANCE,
        "%llu of %llu bodies, largest relative error of a position %.1e, of a change of velocity %.1e",
        (unsigned long long)compared, (unsigned long long)p->bodies, worst_position,
        worst_velocity);
}

static struct verdict compare_momentum(const struct problem *p) {
    struct vector drift = {0};
    double moved = 0;
    for (uint64_t i = 0; i < p->bodies; i++) {
        struct vector change = widened(p->new_velocity[i]);
        add(&change, -1, widened(p->velocity[i]));
        add(&drift, p->position[i].w, change);
        moved += p->position[i].w * size_of(change);
    }
    const double part = size_of(drift) / moved;
    return verdict(part <= MOMENTUM_TOLERANCE, "momentum alone: %.1e of what moved is lost", part);
}

struct verdict problem_verify(const struct problem *p) {
    if (p->bodies <= SERIAL_MAX) return compare(p, 1);
    if (p->steps == 1) return compare(p, p->bodies / SAMPLES);
    return compare_momentum(p);
}

void problem_release(struct problem *p) {
    free(p->position);
    free(p->velocity);
    free(p->new_position);
    free(p->new_velocity);
    free(p);
}
