//@ ps_tex_word
uint ps_tex_word(__global const uchar *d, uint offset) { return *(__global const a_uint *)(d + offset); }
//@ ps_tex_checked
// The descriptor, if it and all its texels are allocated; else one of a texture without texels.
__global const uchar *ps_tex_checked(__global uchar *arena, ulong control, ulong address, uint line) {
    __global uchar *sink = arena + (control - ARENA_BASE) + 192, *d = ps_check(arena, control, address, 64u, line);
    uint type = ps_tex_word(d, 24), bytes = type < 2u ? 1u : type < 4u || type == 6u ? 2u : 4u;
    ulong width = ps_tex_word(d, 16), height = max(ps_tex_word(d, 20), 1u), depth = max(ps_tex_word(d, 56), 1u);
    if (d == sink || width == 0) return d;
    ulong texels = *(__global const a_ulong *)d;
    ulong rest = (height * depth - 1) * *(__global const a_ulong *)(d + 8) + width * bytes * ps_tex_word(d, 28) - 1;
    if (ps_check(arena, control, texels, 1u, line) == sink) return sink;
    return ps_check(arena, control, texels + rest, 1u, line) == sink ? sink : d;
}
//@ ps_tex_channel
// One channel of a texel: integers as they are, halves as floats; with read mode 1 integers as floats from 0 or -1 to 1.
uint ps_tex_channel(__global const uchar *d, __global const uchar *texel, uint channel) {
    uint type = ps_tex_word(d, 24), value = 0u;
    bool scaled = ps_tex_word(d, 44) == 1u;
    switch (type) {
    case 0u:
        value = texel[channel];
        if (scaled) {
            float f = (float)value / 255.0f;
            if (ps_tex_word(d, 52) != 0u && channel < 3u) f = f <= 0.04045f ? f / 12.92f : pow((f + 0.055f) / 1.055f, 2.4f);
            return as_uint(f);
        }
        return value;
    case 1u:
        value = (uint)(int)((__global const char *)texel)[channel];
        return scaled ? as_uint(max((float)(int)value / 127.0f, -1.0f)) : value;
    case 2u:
        value = ((__global const a_ushort *)texel)[channel];
        return scaled ? as_uint((float)value / 65535.0f) : value;
    case 3u:
        value = (uint)(int)((__global const a_short *)texel)[channel];
        return scaled ? as_uint(max((float)(int)value / 32767.0f, -1.0f)) : value;
    case 6u:
        return as_uint(ps_half_to_float(((__global const a_ushort *)texel)[channel]));
    default:
        return ((__global const a_uint *)texel)[channel];
    }
}
//@ ps_tex_texel
// The texel at whole coordinates; a coordinate of -1 is the border, which is zero.
uint4 ps_tex_texel(__global const uchar *d, __global const uchar *t, int x, int y, int z) {
    if (x < 0 || y < 0 || z < 0) return (uint4)(0u);
    uint type = ps_tex_word(d, 24), channels = ps_tex_word(d, 28);
    uint bytes = type < 2u ? 1u : type < 4u || type == 6u ? 2u : 4u;
    ulong pitch = *(__global const a_ulong *)(d + 8), height = max(ps_tex_word(d, 20), 1u);
    __global const uchar *texel = t + ((ulong)z * height + (ulong)y) * pitch + (ulong)x * (bytes * channels);
    uint4 v = (uint4)(0u);
    v.x = ps_tex_channel(d, texel, 0u);
    if (channels > 1u) v.y = ps_tex_channel(d, texel, 1u);
    if (channels > 2u) { v.z = ps_tex_channel(d, texel, 2u); v.w = ps_tex_channel(d, texel, 3u); }
    return v;
}
//@ ps_tex_index
// A whole coordinate inside of 0 to n - 1, after the address mode: 0 wrap, 1 clamp, 2 mirror, 3 border.
int ps_tex_index(uint mode, int i, int n) {
    if (i >= 0 && i < n) return i;
    if (mode == 3u) return -1;
    if (mode == 1u) return i < 0 ? 0 : n - 1;
    // Nobody makes such a descriptor; it must not divide by zero.
    if (n <= 0 || n > 0x3fffffff) return -1;
    if (mode == 0u) { i %= n; return i < 0 ? i + n : i; }
    i %= 2 * n;
    if (i < 0) i += 2 * n;
    return i < n ? i : 2 * n - 1 - i;
}
//@ ps_tex_mode
// The address mode of an axis. Wrap and mirror are for normalized coordinates only.
uint ps_tex_mode(__global const uchar *d, uint axis) {
    uint mode = ps_tex_word(d, axis == 0u ? 32u : axis == 1u ? 36u : 60u);
    return ps_tex_word(d, 48) == 0u && (mode == 0u || mode == 2u) ? 1u : mode;
}
//@ ps_tex_scaled
// A coordinate in units of texels. Normalized ones are brought near to 0 first, so that far ones stay exact. What is no number is 0.
float ps_tex_scaled(__global const uchar *d, uint mode, float x, int n) {
    if (ps_tex_word(d, 48) != 0u) {
        if (mode == 0u) x -= floor(x);
        if (mode == 2u) { float turns = floor(x), part = x - turns; x = fmod(turns, 2.0f) != 0.0f ? 1.0f - part : part; }
        x *= (float)n;
    }
    return isnan(x) ? 0.0f : clamp(x, -1.0f, (float)n + 1.0f);
}
//@ ps_tex_sampled
uint4 ps_tex_sampled(__global const uchar *d, __global const uchar *t, uint dimensions, float x, float y, float z, uint layer) {
    int nx = (int)ps_tex_word(d, 16), ny = (int)max(ps_tex_word(d, 20), 1u), nz = (int)max(ps_tex_word(d, 56), 1u);
    if (nx <= 0) return (uint4)(0u);
    uint mx = ps_tex_mode(d, 0u), my = ps_tex_mode(d, 1u), mz = ps_tex_mode(d, 2u);
    int top = (int)min(layer, (uint)nz - 1u);
    x = ps_tex_scaled(d, mx, x, nx);
    y = dimensions > 1u ? ps_tex_scaled(d, my, y, ny) : 0.0f;
    z = dimensions > 2u ? ps_tex_scaled(d, mz, z, nz) : 0.0f;
    if (ps_tex_word(d, 40) == 0u) {
        int iz = dimensions > 2u ? ps_tex_index(mz, (int)floor(z), nz) : top;
        return ps_tex_texel(d, t, ps_tex_index(mx, (int)floor(x), nx), dimensions > 1u ? ps_tex_index(my, (int)floor(y), ny) : 0, iz);
    }
    // Weights have 8 bits behind the point.
    float fx = floor(x - 0.5f), fy = floor(y - 0.5f), fz = floor(z - 0.5f);
    float wx = rint((x - 0.5f - fx) * 256.0f) / 256.0f, wy = rint((y - 0.5f - fy) * 256.0f) / 256.0f, wz = rint((z - 0.5f - fz) * 256.0f) / 256.0f;
    float4 sum = (float4)(0.0f);
    for (int k = 0; k < (dimensions > 2u ? 2 : 1); k++)
        for (int j = 0; j < (dimensions > 1u ? 2 : 1); j++)
            for (int i = 0; i < 2; i++) {
                float weight = i ? wx : 1.0f - wx;
                if (dimensions > 1u) weight *= j ? wy : 1.0f - wy;
                if (dimensions > 2u) weight *= k ? wz : 1.0f - wz;
                int ix = ps_tex_index(mx, (int)fx + i, nx), iy = dimensions > 1u ? ps_tex_index(my, (int)fy + j, ny) : 0;
                int iz = dimensions > 2u ? ps_tex_index(mz, (int)fz + k, nz) : top;
                // A texel of weight nothing may be infinite.
                if (weight != 0.0f) sum += weight * as_float4(ps_tex_texel(d, t, ix, iy, iz));
            }
    return as_uint4(sum);
}
//@ ps_tex_fetched
// Whole coordinates, no filter. Beyond the end of one dimension is zero, as of linear memory.
uint4 ps_tex_fetched(__global const uchar *d, __global const uchar *t, uint dimensions, int x, int y, int z, uint layer) {
    int nx = (int)ps_tex_word(d, 16), ny = (int)max(ps_tex_word(d, 20), 1u), nz = (int)max(ps_tex_word(d, 56), 1u);
    if (nx <= 0) return (uint4)(0u);
    uint mx = dimensions == 1u ? 3u : ps_tex_mode(d, 0u), my = ps_tex_mode(d, 1u), mz = ps_tex_mode(d, 2u);
    int iy = dimensions > 1u ? ps_tex_index(my, y, ny) : 0;
    int iz = dimensions > 2u ? ps_tex_index(mz, z, nz) : (int)min(layer, (uint)nz - 1u);
    return ps_tex_texel(d, t, ps_tex_index(mx, x, nx), iy, iz);
}
