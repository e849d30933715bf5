/* Bodies that attract each other, over some steps of time. */
#ifndef NBODY_H
#define NBODY_H

#include "../common/common.h"

#define TILE 64 /* work-items of a group, and bodies in its local memory */
#define BUILD_OPTIONS "-DTILE=" TEXT_OF(TILE)

struct body_vector {
    float x, y, z, w; /* w: the mass in positions, 0 in velocities */
};

struct problem {
    uint64_t bodies, steps;
    float time_step, softening; /* softening: the square of the distance that is added to all */
    struct body_vector *position, *velocity;         /* at the beginning */
    struct body_vector *new_position, *new_velocity; /* at the end */
};

#endif
