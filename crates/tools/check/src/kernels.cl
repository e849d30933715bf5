uint pattern(uint seed, uint index) {
    uint x = seed ^ (index * 0x9E3779B9u);
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
    return x ^ (x >> 13);
}
kernel void do_put(global uint *a, uint a_at, uint count, uint seed) {
    uint i = (uint)get_global_id(0);
    if (i < count) a[a_at + i] = pattern(seed, i);
}
kernel void do_slow(global uint *a, uint a_at, uint count, uint seed, uint spin) {
    uint i = (uint)get_global_id(0), x = seed;
    if (i == 0) for (uint j = 0; j < spin; j++) x = x * 1664525u + (j ^ (x >> 7));
    if (i < count) a[a_at + i] = pattern(seed, i) + (x == 0x12345678u && spin > 0x7FFFFFFFu ? 1u : 0u);
}
kernel void do_cast(global const uint *a, uint a_at, uint count, uint seed) {
    uint i = (uint)get_global_id(0);
    if (i < count) ((global uint *)a)[a_at + i] = pattern(seed, i);
}
kernel void do_mix(global uint *a, global const uint *b, uint a_at, uint b_at, uint count, uint seed) {
    uint i = (uint)get_global_id(0);
    if (i < count) a[a_at + i] = a[a_at + i] * 1664525u + (b[b_at + i] ^ seed) + 1013904223u;
}
kernel void do_mix_plain(global uint *a, global uint *b, uint a_at, uint b_at, uint count, uint seed) {
    uint i = (uint)get_global_id(0);
    if (i < count) a[a_at + i] = a[a_at + i] * 1664525u + (b[b_at + i] ^ seed) + 1013904223u;
}
kernel void do_too_big(global uint *source, global uint *scratch, local uint *memory, uint seed) {
    memory[0] = source[0];
    if (seed == 0u) source[0] = memory[0] + 1u;
    scratch[0] = seed;
}
