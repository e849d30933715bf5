/* C = A B, without local memory, as in the paper: one work-item per element of C. A device has whole rows of A and C, and all of B. */
kernel void matrix_mul(global const float *a, global const float *b, global float *c, const ulong n)
{
    const ulong column = get_global_id(0), row = get_global_id(1);
    float sum = 0;
    for (ulong k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}
