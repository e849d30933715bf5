//@ ps_atomic_add_float_global
float ps_atomic_add_float_global(volatile __global float *p, float value) {
    volatile __global uint *word = (volatile __global uint *)p;
    uint old = *word, seen;
    while ((seen = atomic_cmpxchg(word, old, as_uint(as_float(old) + value))) != old) old = seen;
    return as_float(old);
}
//@ ps_atomic_add_double_global
double ps_atomic_add_double_global(volatile __global double *p, double value) {
    volatile __global ulong *word = (volatile __global ulong *)p;
    ulong old = *word, seen;
    while ((seen = atom_cmpxchg(word, old, as_ulong(as_double(old) + value))) != old) old = seen;
    return as_double(old);
}
//@ ps_atomic_inc_global
uint ps_atomic_inc_global(volatile __global uint *p, uint limit) {
    uint old = *p, seen;
    while ((seen = atomic_cmpxchg(p, old, old >= limit ? 0u : old + 1u)) != old) old = seen;
    return old;
}
//@ ps_atomic_dec_global
uint ps_atomic_dec_global(volatile __global uint *p, uint limit) {
    uint old = *p, seen;
    while ((seen = atomic_cmpxchg(p, old, old == 0u || old > limit ? limit : old - 1u)) != old) old = seen;
    return old;
}
//@ ps_atomic_add_half2_global
uint ps_atomic_add_half2_global(volatile __global uint *p, uint value) {
    uint old = *p, seen;
    while ((seen = atomic_cmpxchg(p, old, (uint)ps_half_add((ushort)old, (ushort)value) | (uint)ps_half_add((ushort)(old >> 16), (ushort)(value >> 16)) << 16)) != old) old = seen;
    return old;
}
//@ ps_atomic_add_bf162_global
uint ps_atomic_add_bf162_global(volatile __global uint *p, uint value) {
    uint old = *p, seen;
    while ((seen = atomic_cmpxchg(p, old, (uint)ps_bf16_add((ushort)old, (ushort)value) | (uint)ps_bf16_add((ushort)(old >> 16), (ushort)(value >> 16)) << 16)) != old) old = seen;
    return old;
}
//@ ps_atomic_add_half_global
// In the word of 32 bits that holds it.
ushort ps_atomic_add_half_global(volatile __global ushort *p, ushort value) {
    uint shift = ((ulong)p & 2UL) ? 16u : 0u;
    volatile __global uint *word = (volatile __global uint *)((volatile __global uchar *)p - (shift >> 3));
    uint old = *word, seen;
    for (;;) {
        ushort own = (ushort)(old >> shift);
        ushort next = (ushort)(ps_half_add(own, value));
        seen = atomic_cmpxchg(word, old, (old & ~(0xffffu << shift)) | (uint)next << shift);
        if (seen == old) return own;
        old = seen;
    }
}
//@ ps_atomic_add_bf16_global
// In the word of 32 bits that holds it.
ushort ps_atomic_add_bf16_global(volatile __global ushort *p, ushort value) {
    uint shift = ((ulong)p & 2UL) ? 16u : 0u;
    volatile __global uint *word = (volatile __global uint *)((volatile __global uchar *)p - (shift >> 3));
    uint old = *word, seen;
    for (;;) {
        ushort own = (ushort)(old >> shift);
        ushort next = (ushort)(ps_bf16_add(own, value));
        seen = atomic_cmpxchg(word, old, (old & ~(0xffffu << shift)) | (uint)next << shift);
        if (seen == old) return own;
        old = seen;
    }
}
//@ ps_atomic_cas16_global
// In the word of 32 bits that holds it.
ushort ps_atomic_cas16_global(volatile __global ushort *p, ushort compare, ushort value) {
    uint shift = ((ulong)p & 2UL) ? 16u : 0u;
    volatile __global uint *word = (volatile __global uint *)((volatile __global uchar *)p - (shift >> 3));
    uint old = *word, seen;
    for (;;) {
        ushort own = (ushort)(old >> shift);
        ushort next = (ushort)(own == compare ? value : own);
        seen = atomic_cmpxchg(word, old, (old & ~(0xffffu << shift)) | (uint)next << shift);
        if (seen == old) return own;
        old = seen;
    }
}
//@ ps_atomic_add_float_local
float ps_atomic_add_float_local(volatile __local float *p, float value) {
    volatile __local uint *word = (volatile __local uint *)p;
    uint old = *word, seen;
    while ((seen = atomic_cmpxchg(word, old, as_uint(as_float(old) + value))) != old) old = seen;
    return as_float(old);
}
//@ ps_atomic_add_double_local
double ps_atomic_add_double_local(volatile __local double *p, double value) {
    volatile __local ulong *word = (volatile __local ulong *)p;
    ulong old = *word, seen;
    while ((seen = atom_cmpxchg(word, old, as_ulong(as_double(old) + value))) != old) old = seen;
    return as_double(old);
}
//@ ps_atomic_inc_local
uint ps_atomic_inc_local(volatile __local uint *p, uint limit) {
    uint old = *p, seen;
    while ((seen = atomic_cmpxchg(p, old, old >= limit ? 0u : old + 1u)) != old) old = seen;
    return old;
}
//@ ps_atomic_dec_local
uint ps_atomic_dec_local(volatile __local uint *p, uint limit) {
    uint old = *p, seen;
    while ((seen = atomic_cmpxchg(p, old, old == 0u || old > limit ? limit : old - 1u)) != old) old = seen;
    return old;
}
//@ ps_atomic_add_half2_local
uint ps_atomic_add_half2_local(volatile __local uint *p, uint value) {
    uint old = *p, seen;
    while ((seen = atomic_cmpxchg(p, old, (uint)ps_half_add((ushort)old, (ushort)value) | (uint)ps_half_add((ushort)(old >> 16), (ushort)(value >> 16)) << 16)) != old) old = seen;
    return old;
}
//@ ps_atomic_add_bf162_local
uint ps_atomic_add_bf162_local(volatile __local uint *p, uint value) {
    uint old = *p, seen;
    while ((seen = atomic_cmpxchg(p, old, (uint)ps_bf16_add((ushort)old, (ushort)value) | (uint)ps_bf16_add((ushort)(old >> 16), (ushort)(value >> 16)) << 16)) != old) old = seen;
    return old;
}
//@ ps_atomic_add_half_local
// In the word of 32 bits that holds it.
ushort ps_atomic_add_half_local(volatile __local ushort *p, ushort value) {
    uint shift = ((ulong)p & 2UL) ? 16u : 0u;
    volatile __local uint *word = (volatile __local uint *)((volatile __local uchar *)p - (shift >> 3));
    uint old = *word, seen;
    for (;;) {
        ushort own = (ushort)(old >> shift);
        ushort next = (ushort)(ps_half_add(own, value));
        seen = atomic_cmpxchg(word, old, (old & ~(0xffffu << shift)) | (uint)next << shift);
        if (seen == old) return own;
        old = seen;
    }
}
//@ ps_atomic_add_bf16_local
// In the word of 32 bits that holds it.
ushort ps_atomic_add_bf16_local(volatile __local ushort *p, ushort value) {
    uint shift = ((ulong)p & 2UL) ? 16u : 0u;
    volatile __local uint *word = (volatile __local uint *)((volatile __local uchar *)p - (shift >> 3));
    uint old = *word, seen;
    for (;;) {
        ushort own = (ushort)(old >> shift);
        ushort next = (ushort)(ps_bf16_add(own, value));
        seen = atomic_cmpxchg(word, old, (old & ~(0xffffu << shift)) | (uint)next << shift);
        if (seen == old) return own;
        old = seen;
    }
}
//@ ps_atomic_cas16_local
// In the word of 32 bits that holds it.
ushort ps_atomic_cas16_local(volatile __local ushort *p, ushort compare, ushort value) {
    uint shift = ((ulong)p & 2UL) ? 16u : 0u;
    volatile __local uint *word = (volatile __local uint *)((volatile __local uchar *)p - (shift >> 3));
    uint old = *word, seen;
    for (;;) {
        ushort own = (ushort)(old >> shift);
        ushort next = (ushort)(own == compare ? value : own);
        seen = atomic_cmpxchg(word, old, (old & ~(0xffffu << shift)) | (uint)next << shift);
        if (seen == old) return own;
        old = seen;
    }
}
