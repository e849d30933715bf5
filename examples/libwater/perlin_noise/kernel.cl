/* Gradient noise in the manner of Perlin: a picture of n x n points, the sum of octaves, each with half the period and half the height of
 * the one before. The gradients come from a hash of whole numbers, and a point's place in its cell is exact in single precision, so that all
 * devices agree on everything but the last bits of the sums. */

uint hash(const uint x, const uint y, const uint octave)
{
    uint h = x * 0x9e3779b1u + y * 0x85ebca77u + octave * 0xc2b2ae3du;
    h = (h ^ (h >> 15)) * 0x2c1b3c6du;
    h = (h ^ (h >> 12)) * 0x297a2d39u;
    return h ^ (h >> 15);
}

/* The product of the way from a corner with the corner's gradient, one of eight directions. */
float slope(const uint corner, const float dx, const float dy)
{
    const float u = corner & 4 ? dy : dx, v = corner & 4 ? dx : dy;
    return (corner & 1 ? -u : u) + 0.5f * (corner & 2 ? -v : v);
}

float fade(const float t)
{
    return t * t * t * (t * (t * 6 - 15) + 10);
}

float noise(const uint x, const uint y, const uint period, const uint octave)
{
    const uint cell_x = x / period, cell_y = y / period;
    const float dx = (x % period + 0.5f) / period, dy = (y % period + 0.5f) / period;
    const float top_left = slope(hash(cell_x, cell_y, octave), dx, dy);
    const float top_right = slope(hash(cell_x + 1, cell_y, octave), dx - 1, dy);
    const float bottom_left = slope(hash(cell_x, cell_y + 1, octave), dx, dy - 1);
    const float bottom_right = slope(hash(cell_x + 1, cell_y + 1, octave), dx - 1, dy - 1);
    const float right = fade(dx), down = fade(dy);
    return mix(mix(top_left, top_right, right), mix(bottom_left, bottom_right, right), down);
}

/* A device computes whole rows, from `first_row` on. PERIOD and OCTAVES come with the build. */
kernel void perlin_noise(global float *picture, const ulong n, const ulong first_row)
{
    const ulong x = get_global_id(0), row = get_global_id(1);
    float height = 0.5f, sum = 0;
    for (uint octave = 0; octave < OCTAVES; octave++, height *= 0.5f)
        sum += height * noise((uint)x, (uint)(first_row + row), PERIOD >> octave, octave);
    picture[row * n + x] = sum;
}
