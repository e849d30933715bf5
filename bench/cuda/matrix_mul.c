/* The product of two matrices in OpenCL: what examples/cuda/matrixMul.cu does, with the same tiles,
 * written for OpenCL. Unrolling the loop by hand, or fma() and mad() for the sum, makes it slower
 * on PoCL and on Intel's runtime.
 */
#include "opencl.h"

static const char source[] =
    "__attribute__((reqd_work_group_size(TILE, TILE, 1)))\n"
    "kernel void multiply(global float *restrict c, global const float *restrict a, global const float *restrict b, int depth, int columns)\n"
    "{\n"
    "    local float tile_a[TILE][TILE], tile_b[TILE][TILE];\n"
    "    const int x = get_local_id(0), y = get_local_id(1), column = get_global_id(0), row = get_global_id(1);\n"
    "    float sum = 0;\n"
    "    for (int from = 0; from < depth; from += TILE) {\n"
    "        tile_a[y][x] = a[row * depth + from + x];\n"
    "        tile_b[y][x] = b[(from + y) * columns + column];\n"
    "        barrier(CLK_LOCAL_MEM_FENCE);\n"
    "        for (int k = 0; k < TILE; k++) sum += tile_a[y][k] * tile_b[k][x];\n"
    "        barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    }\n"
    "    c[row * columns + column] = sum;\n"
    "}\n";

int main(int argc, char **argv) {
    size_t size = 640, repeats = 30;
    opencl_options(argc, argv, &size, &repeats);
    struct opencl cl = opencl_open();
    const int side = (int)((size + 31) / 32 * 32), tile = 32;
    const size_t count = (size_t)side * side, bytes = count * sizeof(float);
    float *a = malloc(bytes), *b = malloc(bytes), *c = malloc(bytes);
    unsigned state = 6;
    for (size_t at = 0; at < count; at++)
        a[at] = random_between(&state, -1, 1), b[at] = random_between(&state, -1, 1);

    cl_mem on_a = opencl_buffer(&cl, bytes, a), on_b = opencl_buffer(&cl, bytes, b),
           on_c = opencl_buffer(&cl, bytes, NULL);
    cl_kernel kernel = opencl_kernel(&cl, source, "-DTILE=32", "multiply");
    CHECK(clSetKernelArg(kernel, 0, sizeof on_c, &on_c));
    CHECK(clSetKernelArg(kernel, 1, sizeof on_a, &on_a));
    CHECK(clSetKernelArg(kernel, 2, sizeof on_b, &on_b));
    CHECK(clSetKernelArg(kernel, 3, sizeof side, &side));
    CHECK(clSetKernelArg(kernel, 4, sizeof side, &side));
    const size_t global[] = {(size_t)side, (size_t)side}, local[] = {(size_t)tile, (size_t)tile};
    const double took_ms = opencl_time(&cl, kernel, 2, global, local, repeats);
    CHECK(clEnqueueReadBuffer(cl.queue, on_c, CL_TRUE, 0, bytes, c, 0, NULL, NULL));

    /* Each seventeenth row: a part of the result in all tiles. */
    double largest = 0;
    for (int row = 0; row < side; row += 17)
        for (int column = 0; column < side; column++) {
            double sum = 0, products = 0;
            for (int k = 0; k < side; k++) {
                const double product =
                    (double)a[(size_t)row * side + k] * b[(size_t)k * side + column];
                sum += product;
                products += fabs(product);
            }
            const double error = fabs(c[(size_t)row * side + column] - sum) / products;
            if (!(error <= largest)) largest = error;
        }
    printf("matrix_mul: %d x %d by OpenCL, tiles of %d on %s, %.3f ms, %.2f GFlop/s\n", side, side,
           tile, cl.name, took_ms, 2e-6 * side * side * side / took_ms);
    printf("largest error %.2e of the products' sizes (tolerance 1e-06)\n", largest);
    return verdict(largest < 1e-6);
}
