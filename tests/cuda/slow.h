// A kernel that takes some tenths of a second.
#pragma once

// A compiler combines rounds of a linear congruential generator, and not those of this one.
__global__ static void store_slowly(int *to, int value) {
    unsigned state = threadIdx.x + 1;
    for (int round = 0; round < 30'000'000; round++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
    }
    *to = state == 0 ? 0 : value;
}
