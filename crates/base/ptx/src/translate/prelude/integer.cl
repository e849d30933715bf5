//@ ps_idiv_int
int ps_idiv_int(int a, int b) { return b == 0 ? -1 : b == -1 ? (int)(0u - (uint)a) : a / b; }
//@ ps_idiv_uint
uint ps_idiv_uint(uint a, uint b) { return b == 0 ? 0xffffffffu : a / b; }
//@ ps_idiv_long
long ps_idiv_long(long a, long b) { return b == 0 ? -1L : b == -1 ? (long)(0UL - (ulong)a) : a / b; }
//@ ps_idiv_ulong
ulong ps_idiv_ulong(ulong a, ulong b) { return b == 0 ? 0xffffffffffffffffUL : a / b; }
//@ ps_irem_int
int ps_irem_int(int a, int b) { return b == 0 ? a : b == -1 ? 0 : a % b; }
//@ ps_irem_uint
uint ps_irem_uint(uint a, uint b) { return b == 0 ? a : a % b; }
//@ ps_irem_long
long ps_irem_long(long a, long b) { return b == 0 ? a : b == -1 ? 0L : a % b; }
//@ ps_irem_ulong
ulong ps_irem_ulong(ulong a, ulong b) { return b == 0 ? a : a % b; }
//@ ps_prmt
// Each nibble of c chooses a byte of b:a; its upper bit asks for eight copies of the byte's sign.
uint ps_prmt(uint a, uint b, uint c) {
    ulong bytes = (ulong)b << 32 | a;
    uint result = 0;
    for (uint i = 0; i < 4; i++) {
        uint nibble = c >> (4 * i) & 15u, byte = (uint)(bytes >> (8 * (nibble & 7u))) & 0xffu;
        result |= ((nibble & 8u) ? ((byte & 0x80u) ? 0xffu : 0u) : byte) << (8 * i);
    }
    return result;
}
//@ ps_prmt_f4e
uint ps_prmt_f4e(uint a, uint b, uint c) { return (uint)(((ulong)b << 32 | a) >> (8 * (c & 3u))); }
//@ ps_prmt_b4e
uint ps_prmt_b4e(uint a, uint b, uint c) {
    c &= 3u;
    return ps_prmt(a, b, (c & 7u) | ((c - 1u) & 7u) << 4 | ((c - 2u) & 7u) << 8 | ((c - 3u) & 7u) << 12);
}
//@ ps_prmt_rc8
uint ps_prmt_rc8(uint a, uint b, uint c) { return (a >> (8 * (c & 3u)) & 0xffu) * 0x01010101u; }
//@ ps_prmt_ecl
uint ps_prmt_ecl(uint a, uint b, uint c) {
    c &= 3u;
    return ps_prmt(a, b, max(0u, c) | max(1u, c) << 4 | max(2u, c) << 8 | 3u << 12);
}
//@ ps_prmt_ecr
uint ps_prmt_ecr(uint a, uint b, uint c) {
    c &= 3u;
    return ps_prmt(a, b, 0u | min(1u, c) << 4 | min(2u, c) << 8 | min(3u, c) << 12);
}
//@ ps_prmt_rc16
uint ps_prmt_rc16(uint a, uint b, uint c) { return (a >> (16 * (c & 1u)) & 0xffffu) * 0x00010001u; }
//@ ps_brev32
uint ps_brev32(uint a) {
    a = (a >> 1 & 0x55555555u) | (a & 0x55555555u) << 1;
    a = (a >> 2 & 0x33333333u) | (a & 0x33333333u) << 2;
    a = (a >> 4 & 0x0f0f0f0fu) | (a & 0x0f0f0f0fu) << 4;
    a = (a >> 8 & 0x00ff00ffu) | (a & 0x00ff00ffu) << 8;
    return a >> 16 | a << 16;
}
//@ ps_brev64
ulong ps_brev64(ulong a) { return (ulong)ps_brev32((uint)a) << 32 | ps_brev32((uint)(a >> 32)); }
//@ ps_bfind_u32
uint ps_bfind_u32(uint a) { return 31u - clz(a); }
//@ ps_bfind_u64
uint ps_bfind_u64(ulong a) { return (uint)(63UL - clz(a)); }
//@ ps_bfind_s32
uint ps_bfind_s32(uint a) { return 31u - clz((int)a < 0 ? ~a : a); }
//@ ps_bfind_s64
uint ps_bfind_s64(ulong a) { return (uint)(63UL - clz((long)a < 0 ? ~a : a)); }
//@ ps_bfind_u32_shiftamt
uint ps_bfind_u32_shiftamt(uint a) { return a == 0 ? 0xffffffffu : clz(a); }
//@ ps_bfind_u64_shiftamt
uint ps_bfind_u64_shiftamt(ulong a) { return a == 0 ? 0xffffffffu : (uint)clz(a); }
//@ ps_bfind_s32_shiftamt
uint ps_bfind_s32_shiftamt(uint a) { return ps_bfind_u32_shiftamt((int)a < 0 ? ~a : a); }
//@ ps_bfind_s64_shiftamt
uint ps_bfind_s64_shiftamt(ulong a) { return ps_bfind_u64_shiftamt((long)a < 0 ? ~a : a); }
//@ ps_bfe_u32
uint ps_bfe_u32(uint a, uint b, uint c) {
    b &= 255u; c &= 255u;
    if (b > 31u || c == 0u) return 0u;
    a >>= b;
    return c > 31u ? a : a & ((1u << c) - 1u);
}
//@ ps_bfe_u64
ulong ps_bfe_u64(ulong a, uint b, uint c) {
    b &= 255u; c &= 255u;
    if (b > 63u || c == 0u) return 0UL;
    a >>= b;
    return c > 63u ? a : a & ((1UL << c) - 1UL);
}
//@ ps_bfe_s32
// Beyond the field, and beyond the number, is the sign: bit min(b + c - 1, 31).
uint ps_bfe_s32(uint a, uint b, uint c) {
    b &= 255u; c &= 255u;
    if (c == 0u) return 0u;
    uint last = min(b + c - 1u, 31u), sign = (a >> last & 1u) ? 0xffffffffu : 0u;
    if (b > 31u) return sign;
    uint field = last - b + 1u, mask = field > 31u ? 0xffffffffu : (1u << field) - 1u;
    return (a >> b & mask) | (sign & ~mask);
}
//@ ps_bfe_s64
ulong ps_bfe_s64(ulong a, uint b, uint c) {
    b &= 255u; c &= 255u;
    if (c == 0u) return 0UL;
    uint last = min(b + c - 1u, 63u);
    ulong sign = (a >> last & 1UL) ? 0xffffffffffffffffUL : 0UL;
    if (b > 63u) return sign;
    uint field = last - b + 1u;
    ulong mask = field > 63u ? 0xffffffffffffffffUL : (1UL << field) - 1UL;
    return (a >> b & mask) | (sign & ~mask);
}
//@ ps_bfi32
uint ps_bfi32(uint a, uint b, uint c, uint d) {
    c &= 255u; d &= 255u;
    if (c > 31u || d == 0u) return b;
    uint mask = (d > 31u ? 0xffffffffu : (1u << d) - 1u) << c;
    return (b & ~mask) | (a << c & mask);
}
//@ ps_bfi64
ulong ps_bfi64(ulong a, ulong b, uint c, uint d) {
    c &= 255u; d &= 255u;
    if (c > 63u || d == 0u) return b;
    ulong mask = (d > 63u ? 0xffffffffffffffffUL : (1UL << d) - 1UL) << c;
    return (b & ~mask) | (a << c & mask);
}
//@ ps_fns
// The offset-th set bit from base upwards (downwards if negative); base itself, if set, for 0.
uint ps_fns(uint mask, uint base, uint offset_bits) {
    int offset = (int)offset_bits;
    if (offset == 0) return base < 32u && (mask >> base & 1u) ? base : 0xffffffffu;
    int step = offset > 0 ? 1 : -1, left = offset > 0 ? offset : -offset;
    for (int i = (int)base; i >= 0 && i < 32; i += step) {
        if (mask >> i & 1u) {
            if (--left == 0) return (uint)i;
        }
    }
    return 0xffffffffu;
}
//@ ps_bmsk_clamp
uint ps_bmsk_clamp(uint a, uint b) {
    if (a > 31u || b == 0u) return 0u;
    return (b > 31u ? 0xffffffffu : (1u << b) - 1u) << a;
}
//@ ps_bmsk_wrap
uint ps_bmsk_wrap(uint a, uint b) { return ((1u << (b & 31u)) - 1u) << (a & 31u); }
//@ ps_szext_u_clamp
uint ps_szext_u_clamp(uint a, uint b) { return b > 31u ? a : a & ((1u << b) - 1u); }
//@ ps_szext_u_wrap
uint ps_szext_u_wrap(uint a, uint b) { return a & ((1u << (b & 31u)) - 1u); }
//@ ps_szext_s_clamp
uint ps_szext_s_clamp(uint a, uint b) { return b > 31u ? a : b == 0u ? 0u : (uint)((int)(a << (32u - b)) >> (32u - b)); }
//@ ps_szext_s_wrap
uint ps_szext_s_wrap(uint a, uint b) { b &= 31u; return b == 0u ? 0u : (uint)((int)(a << (32u - b)) >> (32u - b)); }
