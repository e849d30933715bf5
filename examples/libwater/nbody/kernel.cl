/* One step of bodies that attract each other. A device moves `count` bodies from `first` on, and reads the positions of all of them: its
 * work-groups through local memory, one tile after the other. w of a position is the mass. */
kernel void nbody(global const float4 *position, global const float4 *velocity, global float4 *new_position, global float4 *new_velocity,
                  const ulong bodies, const ulong first, const ulong count, const float time_step, const float softening)
{
    local float4 tile[TILE];
    const ulong own = get_global_id(0), body = first + own;
    const uint lane = get_local_id(0);
    const float4 here = position[min(body, bodies - 1)];
    float4 pull = 0;
    for (ulong start = 0; start < bodies; start += TILE) {
        const uint others = (uint)min((ulong)TILE, bodies - start);
        if (lane < others) tile[lane] = position[start + lane];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = 0; i < others; i++) {
            float4 way = tile[i] - here;
            way.w = 0;
            const float closeness = rsqrt(dot(way, way) + softening);
            pull += tile[i].w * closeness * closeness * closeness * way;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (own >= count) return;
    const float4 speed = velocity[body] + time_step * pull; /* w of both is 0 */
    new_velocity[body] = speed;
    new_position[body] = here + time_step * speed;
}
