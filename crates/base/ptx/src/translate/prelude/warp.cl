//@ ps_lanes
// The lanes of a thread's warp that exist.
uint ps_lanes(uint lid, uint threads) {
    uint rest = threads - (lid & ~31u);
    return rest >= 32u ? 0xffffffffu : (1u << rest) - 1u;
}
//@ ps_shfl_up ps_shfl_down ps_shfl_bfly ps_shfl_idx
// The lane to read from, and in bit 8 whether it is in range.
uint ps_shfl_up(uint lane, uint by, uint c) {
    uint segment = c >> 8 & 31u, most = (lane & segment) | (c & 31u & ~segment);
    int from = (int)lane - (int)(by & 31u);
    return from >= (int)most ? (uint)from | 256u : lane;
}
uint ps_shfl_down(uint lane, uint by, uint c) {
    uint segment = c >> 8 & 31u, most = (lane & segment) | (c & 31u & ~segment), from = lane + (by & 31u);
    return from <= most ? from | 256u : lane;
}
uint ps_shfl_bfly(uint lane, uint by, uint c) {
    uint segment = c >> 8 & 31u, most = (lane & segment) | (c & 31u & ~segment), from = lane ^ (by & 31u);
    return from <= most ? from | 256u : lane;
}
uint ps_shfl_idx(uint lane, uint by, uint c) {
    uint segment = c >> 8 & 31u, most = (lane & segment) | (c & 31u & ~segment), from = (lane & segment) | (by & 31u & ~segment);
    return from <= most ? from | 256u : lane;
}
//@ ps_shfl
// A lane that is in range and not here gives 0: PTX leaves it open, but reductions over a part of a warp add such lanes.
ulong ps_shfl(__local const ps_word *w, uint here, uint from, ulong own) {
    uint lane = from & 31u;
    ulong value = from >> 8 == 0u ? own : (here >> lane & 1u) ? w[lane] : 0UL;
    return (value & 0xffffffffUL) | (ulong)(from >> 8) << 32;
}
//@ ps_ballot
uint ps_ballot(__local const ps_word *w, uint here) {
    uint ballot = 0;
    for (uint i = 0; i < 32u; i++) ballot |= ((here >> i & 1u) && w[i] != 0UL) ? 1u << i : 0u;
    return ballot;
}
//@ ps_match_any
uint ps_match_any(__local const ps_word *w, uint here, ulong own) {
    uint same = 0;
    for (uint i = 0; i < 32u; i++) same |= ((here >> i & 1u) && w[i] == own) ? 1u << i : 0u;
    return same;
}
//@ ps_match_all
ulong ps_match_all(__local const ps_word *w, uint here, ulong own) { return ps_match_any(w, here, own) == here ? (ulong)here | 1UL << 32 : 0UL; }
//@ ps_lanes_without
// A warp counts as a whole where a barrier waits for a number of threads: the lanes of the warps that came which have ended, or never were.
uint ps_lanes_without(__local const uint *came, __local const uint *gone, uint threads, uint barriers) {
    uint sum = 0;
    for (uint warp = 0; warp < (threads + 31u) / 32u; warp++) if (came[warp * barriers] != 0u) sum += popcount(gone[warp] & ~came[warp * barriers]);
    return sum;
}
//@ ps_elect
ulong ps_elect(uint here, uint lane) {
    uint first = 31u - clz(here & (0u - here));
    return (ulong)first | (ulong)(first == lane ? 1u : 0u) << 32;
}
//@ ps_redux_add
uint ps_redux_add(__local const ps_word *w, uint here) { uint r = 0; for (uint i = 0; i < 32u; i++) if (here >> i & 1u) r += (uint)w[i]; return r; }
//@ ps_redux_and
uint ps_redux_and(__local const ps_word *w, uint here) { uint r = 0xffffffffu; for (uint i = 0; i < 32u; i++) if (here >> i & 1u) r &= (uint)w[i]; return r; }
//@ ps_redux_or
uint ps_redux_or(__local const ps_word *w, uint here) { uint r = 0; for (uint i = 0; i < 32u; i++) if (here >> i & 1u) r |= (uint)w[i]; return r; }
//@ ps_redux_xor
uint ps_redux_xor(__local const ps_word *w, uint here) { uint r = 0; for (uint i = 0; i < 32u; i++) if (here >> i & 1u) r ^= (uint)w[i]; return r; }
//@ ps_redux_min
uint ps_redux_min(__local const ps_word *w, uint here) { uint r = 0xffffffffu; for (uint i = 0; i < 32u; i++) if (here >> i & 1u) r = min(r, (uint)w[i]); return r; }
//@ ps_redux_max
uint ps_redux_max(__local const ps_word *w, uint here) { uint r = 0; for (uint i = 0; i < 32u; i++) if (here >> i & 1u) r = max(r, (uint)w[i]); return r; }
//@ ps_redux_min_s
uint ps_redux_min_s(__local const ps_word *w, uint here) { int r = 0x7fffffff; for (uint i = 0; i < 32u; i++) if (here >> i & 1u) r = min(r, (int)(uint)w[i]); return (uint)r; }
//@ ps_redux_max_s
uint ps_redux_max_s(__local const ps_word *w, uint here) { int r = (int)0x80000000u; for (uint i = 0; i < 32u; i++) if (here >> i & 1u) r = max(r, (int)(uint)w[i]); return (uint)r; }
//@ ps_is_between
// Whether a lane of the warp stops at a place with a number between two others.
bool ps_is_between(__local const uint *spots, uint count, uint low, uint high) {
    for (uint i = 0; i < count; i++) if (spots[i] > low && spots[i] < high) return true;
    return false;
}
//@ ps_gather
// Whether all lanes of `members` that have not ended wait for the same thing; which these are goes to `here`.
bool ps_gather(__local const uint *keys, __local const uint *masks, uint count, uint lane, uint members, bool waits_for_members, uint *here) {
    uint key = keys[lane], found = 1u << lane;
    for (uint i = 0; i < count; i++) {
        bool same = keys[i] == key && masks[i] == members;
        if (waits_for_members && (members >> i & 1u) && !same && keys[i] != 0u) return false;
        if (same) found |= 1u << i;
    }
    *here = waits_for_members ? (found & members) | 1u << lane : found;
    return true;
}
