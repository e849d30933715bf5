/* For each query the K nearest reference points, nearest first; of two that are as near the one with the lower index. One work-item per
 * query; its work-group reads the references through local memory, one tile after the other.
 *
 * `first` is the index of the first reference that this device has, so that indices hold for all of them. */
kernel void knn(global const float4 *reference, global const float4 *query, global float *distance, global uint *index,
                const ulong references, const ulong first, const ulong queries)
{
    local float4 tile[TILE];
    const ulong own = get_global_id(0);
    const uint lane = get_local_id(0);
    const float4 here = query[min(own, queries - 1)];
    float best[K];
    uint where[K];
    for (uint k = 0; k < K; k++) {
        best[k] = INFINITY;
        where[k] = UINT_MAX;
    }
    for (ulong start = 0; start < references; start += TILE) {
        const uint count = (uint)min((ulong)TILE, references - start);
        if (lane < count) tile[lane] = reference[start + lane];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = 0; i < count; i++) {
            const float4 way = tile[i] - here;
            const float square = dot(way, way);
            if (square >= best[K - 1]) continue;
            uint place = K - 1;
            for (; place > 0 && best[place - 1] > square; place--) {
                best[place] = best[place - 1];
                where[place] = where[place - 1];
            }
            best[place] = square;
            where[place] = (uint)(first + start + i);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (own >= queries) return;
    for (uint k = 0; k < K; k++) {
        distance[own * K + k] = best[k];
        index[own * K + k] = where[k];
    }
}
