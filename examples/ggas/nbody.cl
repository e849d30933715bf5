/* Bodies that attract each other. A device moves some of them, and has the positions of all;
 * work-groups have a share of the device's each. A work-group is one work-item, which computes 16
 * bodies at a time: on a CPU that is a core and the lanes of its vectors.
 *
 * `move` does one step of a share; both versions use it. The host's version runs the kernel
 * `one_step` for each step, and brings the new positions to all devices between steps. The device's
 * version is the kernel `all_steps`: it stays for all steps, and brings them there itself. */
#include <ggas.h>

#pragma OPENCL FP_CONTRACT OFF /* so that both versions compute the same bits */

/* Bodies `first` to `end`, one block of 16 after the other; the last one may have fewer. w of a
 * position is the mass. */
static void move(global const float4 *position, global float4 *velocity,
                 global float4 *new_position, const ulong bodies, const ulong first,
                 const ulong end, const float time_step, const float softening) {
    for (ulong start = first; start < end; start += 16) {
        const uint count = (uint)min((ulong)16, end - start);
        float at[3][16], way[3][16];
        for (uint i = 0; i < 16; i++) {
            const float4 body = position[start + min(i, count - 1)];
            at[0][i] = body.x;
            at[1][i] = body.y;
            at[2][i] = body.z;
        }
        const float16 x = vload16(0, at[0]), y = vload16(0, at[1]), z = vload16(0, at[2]);
        float16 pull_x = 0, pull_y = 0, pull_z = 0;
        for (ulong i = 0; i < bodies; i++) {
            const float4 other = position[i];
            const float16 dx = other.x - x, dy = other.y - y, dz = other.z - z;
            const float16 square = dx * dx + dy * dy + dz * dz + softening;
            const float16 strength = other.w / (square * sqrt(square));
            pull_x += strength * dx;
            pull_y += strength * dy;
            pull_z += strength * dz;
        }
        vstore16(pull_x, 0, way[0]);
        vstore16(pull_y, 0, way[1]);
        vstore16(pull_z, 0, way[2]);
        for (uint i = 0; i < count; i++) {
            const float4 pull = (float4)(way[0][i], way[1][i], way[2][i], 0.0f);
            const float4 speed = velocity[start + i] + time_step * pull; /* w of both is 0 */
            velocity[start + i] = speed;
            new_position[start + i] = position[start + i] + time_step * speed;
        }
    }
}

static ulong share_begin(const ulong first, const ulong count, const ulong share,
                         const ulong shares) {
    return first + count * share / shares;
}

/* The bodies of PE `pe`: extra ones go to the first PEs. */
static ulong first_of(const ulong bodies, const ulong pe, const ulong pes) {
    return bodies / pes * pe + min(pe, bodies % pes);
}

kernel void one_step(global const float4 *position, global float4 *velocity,
                     global float4 *new_position, const ulong bodies, const ulong first,
                     const ulong count, const float time_step, const float softening) {
    const ulong share = get_group_id(0), shares = get_num_groups(0);
    move(position, velocity, new_position, bodies, share_begin(first, count, share, shares),
         share_begin(first, count, share + 1, shares), time_step, softening);
}

/* What lies in each device's part of the heap, in bytes: positions of all bodies twice, velocities
 * of all (only the own ones are right), then one line of 64 bytes for each signal: each share of
 * each PE has one, and each own share tells how it ended. */
#define POSITION(which) ((which) * all_bytes)
#define VELOCITY (2 * all_bytes)
#define MOVED(pe, share) (3 * all_bytes + ((pe) * shares + (share)) * 64)
#define STATUS(share) (3 * all_bytes + (pes * shares + (share)) * 64)

/* `epoch` is how many steps all launches before have done: signals only grow. */
kernel void all_steps(global ggas_heap_t *heap, const ulong bodies, const ulong steps,
                      const ulong epoch, const float time_step, const float softening) {
    ggas_t g = ggas_open(heap);
    const ulong me = ggas_my_pe(g), pes = ggas_n_pes(g), all_bytes = bodies * sizeof(float4);
    const ulong share = get_group_id(0), shares = get_num_groups(0);
    const ulong first = first_of(bodies, me, pes), count = first_of(bodies, me + 1, pes) - first;
    const ulong begin = share_begin(first, count, share, shares),
                end = share_begin(first, count, share + 1, shares);
    global float4 *velocity = (global float4 *)ggas_ptr(g, VELOCITY, (uint)me);
    int status = GGAS_OK;

    for (ulong s = 1; s <= steps && status == GGAS_OK; s++) {
        global const float4 *old =
            (global const float4 *)ggas_ptr(g, POSITION((s - 1) % 2), (uint)me);
        global float4 *new = (global float4 *)ggas_ptr(g, POSITION(s % 2), (uint)me);
        move(old, velocity, new, bodies, begin, end, time_step, softening);
        /* Whoever gets a signal knows also that this share has read the old positions, which the
         * next step overwrites. */
        const ulong at = POSITION(s % 2) + begin * sizeof(float4),
                    bytes = (end - begin) * sizeof(float4);
        for (ulong i = 1; i < pes; i++)
            ggas_put_signal(g, at, at, bytes, MOVED(me, share), epoch + s, (uint)((me + i) % pes));
        ggas_signal(g, MOVED(me, share), epoch + s, (uint)me);
        for (ulong pe = 0; pe < pes && status == GGAS_OK; pe++)
            for (ulong other = 0; other < shares && status == GGAS_OK; other++)
                status = ggas_wait_until(g, MOVED(pe, other), GGAS_CMP_GE, epoch + s);
    }
    *(global int *)ggas_ptr(g, STATUS(share), (uint)me) = status;
}
