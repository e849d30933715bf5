/* Shortest paths between all vertices, BLOCK intermediate vertices at a time (the blocked form of Floyd and Warshall's algorithm). The matrix
 * is cut into tiles of BLOCK x BLOCK; for the intermediate vertices `pivot` to `pivot + BLOCK - 1`, in this order:
 *
 *   diagonal       the tile where their rows and columns cross: paths among them
 *   pivot_rows     the rest of their rows
 *   pivot_columns  the rest of their columns
 *   rest           all other tiles
 *
 * A device does the last two for its own rows, from `first` on, but for the tiles of row `done`; the owner of the pivots' rows does the first
 * two, and the others get them from it. No kernel reads a tile that it writes in another work-group. One way of distance INFINITE is as long
 * as none. */

typedef local uint (*tile_t)[BLOCK];

void load(tile_t tile, global const uint *distance, const ulong n, const ulong row, const ulong column)
{
    const uint x = get_local_id(0), y = get_local_id(1);
    tile[y][x] = distance[(row + y) * n + column + x];
}

/* The shortest way over the tiles' common vertices, or `best` if that is shorter. */
uint way_through(tile_t left, tile_t right, uint best)
{
    const uint x = get_local_id(0), y = get_local_id(1);
    for (uint k = 0; k < BLOCK; k++) best = min(best, left[y][k] + right[k][x]);
    return best;
}

kernel void diagonal(global uint *distance, const ulong n, const ulong first, const ulong pivot, const ulong done)
{
    local uint tile[BLOCK][BLOCK];
    const uint x = get_local_id(0), y = get_local_id(1);
    load(tile, distance, n, pivot, pivot);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = 0; k < BLOCK; k++) {
        const uint through = tile[y][k] + tile[k][x];
        barrier(CLK_LOCAL_MEM_FENCE);
        tile[y][x] = min(tile[y][x], through);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    distance[(pivot + y) * n + pivot + x] = tile[y][x];
}

kernel void pivot_rows(global uint *distance, const ulong n, const ulong first, const ulong pivot, const ulong done)
{
    local uint cross[BLOCK][BLOCK], own[BLOCK][BLOCK];
    const uint x = get_local_id(0), y = get_local_id(1);
    const ulong column = get_group_id(0) * BLOCK;
    load(cross, distance, n, pivot, pivot);
    load(own, distance, n, pivot, column);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (column != pivot) distance[(pivot + y) * n + column + x] = way_through(cross, own, own[y][x]);
}

kernel void pivot_columns(global uint *distance, const ulong n, const ulong first, const ulong pivot, const ulong done)
{
    local uint cross[BLOCK][BLOCK], own[BLOCK][BLOCK];
    const uint x = get_local_id(0), y = get_local_id(1);
    const ulong row = first + get_group_id(1) * BLOCK;
    load(cross, distance, n, pivot, pivot);
    load(own, distance, n, row, pivot);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (row != pivot && row != done) distance[(row + y) * n + pivot + x] = way_through(own, cross, own[y][x]);
}

kernel void rest(global uint *distance, const ulong n, const ulong first, const ulong pivot, const ulong done)
{
    local uint left[BLOCK][BLOCK], above[BLOCK][BLOCK];
    const uint x = get_local_id(0), y = get_local_id(1);
    const ulong row = first + get_group_id(1) * BLOCK, column = get_group_id(0) * BLOCK;
    load(left, distance, n, row, pivot);
    load(above, distance, n, pivot, column);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (row == pivot || row == done || column == pivot) return;
    global uint *here = distance + (row + y) * n + column + x;
    *here = way_through(left, above, *here);
}
