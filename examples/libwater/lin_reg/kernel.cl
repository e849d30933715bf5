/* For each candidate line y = alpha x + beta: the sum of the squares of its errors at all points. One work-item per candidate, no local
 * memory, as in the paper. A device has some of the candidates and all points.
 *
 * The squares are added in runs of RUN: so the rounding of single precision grows with RUN + points / RUN, and not with the points. */
kernel void lin_reg(global const float *x, global const float *y, global const float *alpha, global const float *beta,
                    global float *error, const ulong points)
{
    const ulong candidate = get_global_id(0);
    const float slope = alpha[candidate], height = beta[candidate];
    float sum = 0;
    for (ulong start = 0; start < points; start += RUN) {
        const ulong end = min(start + RUN, points);
        float run = 0;
        for (ulong i = start; i < end; i++) {
            const float distance = slope * x[i] + height - y[i];
            run += distance * distance;
        }
        sum += run;
    }
    error[candidate] = sum;
}
