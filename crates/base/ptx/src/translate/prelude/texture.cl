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
//@ ps_tex_filtered
// At coordinates in units of texels: the texel there, or what lies between its neighbours. All arguments are scalars: Intel's compiler mixed up
// the lanes of vectors of three.
uint4 ps_tex_filtered(__global const uchar *d, __global const uchar *t, uint dimensions, int nx, int ny, int nz, uint mx, uint my, uint mz, float x, float y, float z,
    int top) {
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
//@ ps_tex_sampled
uint4 ps_tex_sampled(__global const uchar *d, __global const uchar *t, uint dimensions, float x, float y, float z, uint layer) {
    int nx = (int)ps_tex_word(d, 16), ny = (int)max(ps_tex_word(d, 20), 1u), nz = (int)max(ps_tex_word(d, 56), 1u);
    if (nx <= 0) return (uint4)(0u);
    uint mx = ps_tex_mode(d, 0u), my = ps_tex_mode(d, 1u), mz = ps_tex_mode(d, 2u);
    x = ps_tex_scaled(d, mx, x, nx);
    y = dimensions > 1u ? ps_tex_scaled(d, my, y, ny) : 0.0f;
    z = dimensions > 2u ? ps_tex_scaled(d, mz, z, nz) : 0.0f;
    return ps_tex_filtered(d, t, dimensions, nx, ny, nz, mx, my, mz, x, y, z, (int)min(layer, (uint)nz - 1u));
}
//@ ps_tex_cube
// A direction: the axis along which it goes the farthest chooses the face, the others the place there. A face ends at its edges.
uint4 ps_tex_cube(__global const uchar *d, __global const uchar *t, float x, float y, float z, uint layer) {
    int n = (int)ps_tex_word(d, 16), nz = (int)max(ps_tex_word(d, 56), 1u);
    if (n <= 0) return (uint4)(0u);
    float ax = fabs(x), ay = fabs(y), az = fabs(z), longest, u, v;
    uint face;
    if (ax >= ay && ax >= az) { face = x < 0.0f ? 1u : 0u; longest = ax; u = x < 0.0f ? z : -z; v = -y; }
    else if (ay >= az) { face = y < 0.0f ? 3u : 2u; longest = ay; u = x; v = y < 0.0f ? -z : z; }
    else { face = z < 0.0f ? 5u : 4u; longest = az; u = z < 0.0f ? -x : x; v = -y; }
    u = (u / longest + 1.0f) / 2.0f * (float)n;
    v = (v / longest + 1.0f) / 2.0f * (float)n;
    u = isnan(u) ? 0.0f : clamp(u, 0.0f, (float)n);
    v = isnan(v) ? 0.0f : clamp(v, 0.0f, (float)n);
    int top = (int)min(min(layer, 0xffffffu) * 6u + face, (uint)nz - 1u);
    return ps_tex_filtered(d, t, 2u, n, n, nz, 1u, 1u, 1u, u, v, 0.0f, top);
}
//@ ps_tex_gathered
// One channel of the four texels that a filter would use: the lower row from the left, then the upper one from the right.
uint4 ps_tex_gathered(__global const uchar *d, __global const uchar *t, uint channel, float x, float y, uint layer) {
    int nx = (int)ps_tex_word(d, 16), ny = (int)max(ps_tex_word(d, 20), 1u), nz = (int)max(ps_tex_word(d, 56), 1u);
    if (nx <= 0) return (uint4)(0u);
    uint mx = ps_tex_mode(d, 0u), my = ps_tex_mode(d, 1u);
    int i = (int)floor(ps_tex_scaled(d, mx, x, nx) - 0.5f), j = (int)floor(ps_tex_scaled(d, my, y, ny) - 0.5f);
    int left = ps_tex_index(mx, i, nx), right = ps_tex_index(mx, i + 1, nx);
    int upper = ps_tex_index(my, j, ny), lower = ps_tex_index(my, j + 1, ny), top = (int)min(layer, (uint)nz - 1u);
    uint4 texels[4];
    texels[0] = ps_tex_texel(d, t, left, lower, top);
    texels[1] = ps_tex_texel(d, t, right, lower, top);
    texels[2] = ps_tex_texel(d, t, right, upper, top);
    texels[3] = ps_tex_texel(d, t, left, upper, top);
    uint one[4];
    for (int k = 0; k < 4; k++) one[k] = channel == 0u ? texels[k].x : channel == 1u ? texels[k].y : channel == 2u ? texels[k].z : texels[k].w;
    return (uint4)(one[0], one[1], one[2], one[3]);
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
//@ ps_surface
// The place of `bytes` bytes, from byte `x` of a row on; null where the surface has none. Clamped, it has them everywhere: those at its edge.
__global uchar *ps_surface(__global const uchar *d, __global uchar *t, int x, int y, int z, uint bytes, uint clamps) {
    uint type = ps_tex_word(d, 24), texel = (type < 2u ? 1u : type < 4u || type == 6u ? 2u : 4u) * ps_tex_word(d, 28);
    ulong row = (ulong)ps_tex_word(d, 16) * texel, rows = max(ps_tex_word(d, 20), 1u), slices = max(ps_tex_word(d, 56), 1u);
    if (row < bytes) return 0;
    if (clamps != 0u) {
        x = (int)clamp((long)x, 0L, (long)(row - bytes)) & ~(int)(bytes - 1u);
        y = (int)clamp((long)y, 0L, (long)rows - 1);
        z = (int)clamp((long)z, 0L, (long)slices - 1);
    }
    bool inside = x >= 0 && (ulong)x + bytes <= row && y >= 0 && (ulong)y < rows && z >= 0 && (ulong)z < slices;
    if (!inside || ((uint)x & (bytes - 1u)) != 0u) return 0;
    return t + ((ulong)z * rows + (ulong)y) * *(__global const a_ulong *)(d + 8) + (ulong)x;
}
