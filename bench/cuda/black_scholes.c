/* Prices of options in OpenCL: what examples/cuda/BlackScholes.cu does, two options for each
 * work-item, written for OpenCL. */
#include "opencl.h"

/* In two forms, of which one is much faster than the other on each device: arithmetic on pairs of
 * options (FORM = float2), which PoCL makes SSE code of, and on single ones (FORM = float), of
 * which Intel's compiler makes vectors over many work-items. exp() and log(), not native_exp() and
 * native_log(): on Intel's runtime those give three digits only, and on PoCL they are slower.
 */
static const char source[] =
    "FORM normal_cdf(FORM x)\n"
    "{\n"
    "    const FORM t = 1.0f / (1.0f + 0.2316419f * fabs(x));\n"
    "    const FORM tail = 0.39894228040143267794f * exp(-0.5f * x * x) *\n"
    "        (t * (0.319381530f + t * (-0.356563782f + t * (1.781477937f + t * (-1.821255978f + t * 1.330274429f)))));\n"
    "    return x > 0.0f ? 1.0f - tail : tail;\n"
    "}\n"
    "void prices(FORM stock, FORM strike, FORM time, FORM *call, FORM *put)\n"
    "{\n"
    "    const float r = 0.02f, v = 0.30f;\n"
    "    const FORM root = sqrt(time), d1 = (log(stock / strike) + (r + 0.5f * v * v) * time) / (v * root);\n"
    "    const FORM below_d1 = normal_cdf(d1), below_d2 = normal_cdf(d1 - v * root), discounted = strike * exp(-r * time);\n"
    "    *call = stock * below_d1 - discounted * below_d2;\n"
    "    *put = discounted * (1.0f - below_d2) - stock * (1.0f - below_d1);\n"
    "}\n"
    "__attribute__((reqd_work_group_size(128, 1, 1)))\n"
    "kernel void black_scholes(global float2 *restrict calls, global float2 *restrict puts, global const float2 *restrict stocks,\n"
    "                          global const float2 *restrict strikes, global const float2 *restrict years, uint pairs)\n"
    "{\n"
    "    const uint at = get_global_id(0);\n"
    "    if (at >= pairs) return;\n"
    "    const float2 stock = stocks[at], strike = strikes[at], time = years[at];\n"
    "#ifdef PAIRS\n"
    "    float2 call, put;\n"
    "    prices(stock, strike, time, &call, &put);\n"
    "    calls[at] = call;\n"
    "    puts[at] = put;\n"
    "#else\n"
    "    float call0, call1, put0, put1;\n"
    "    prices(stock.x, strike.x, time.x, &call0, &put0);\n"
    "    prices(stock.y, strike.y, time.y, &call1, &put1);\n"
    "    calls[at] = (float2)(call0, call1);\n"
    "    puts[at] = (float2)(put0, put1);\n"
    "#endif\n"
    "}\n";

static double below(double x) { return 0.5 * erfc(-x / sqrt(2.0)); }

int main(int argc, char **argv) {
    size_t size = 4000000, repeats = 32;
    opencl_options(argc, argv, &size, &repeats);
    struct opencl cl = opencl_open();
    const size_t count = (size + 1) / 2 * 2, bytes = count * sizeof(float);
    const cl_uint pairs = (cl_uint)(count / 2);
    float *stocks = malloc(bytes), *strikes = malloc(bytes), *years = malloc(bytes),
          *calls = malloc(bytes), *puts_ = malloc(bytes);
    unsigned state = 5347;
    for (size_t at = 0; at < count; at++) {
        stocks[at] = random_between(&state, 5, 30);
        strikes[at] = random_between(&state, 1, 100);
        years[at] = random_between(&state, 0.25F, 10);
    }
    cl_mem buffers[] = {opencl_buffer(&cl, bytes, NULL), opencl_buffer(&cl, bytes, NULL),
                        opencl_buffer(&cl, bytes, stocks), opencl_buffer(&cl, bytes, strikes),
                        opencl_buffer(&cl, bytes, years)};
    char version[256] = "";
    CHECK(clGetDeviceInfo(cl.device, CL_DEVICE_VERSION, sizeof version, version, NULL));
    const char *options = strstr(version, "pocl") != NULL || strstr(version, "PoCL") != NULL
                              ? "-DPAIRS -DFORM=float2"
                              : "-DFORM=float";
    cl_kernel kernel = opencl_kernel(&cl, source, options, "black_scholes");
    for (cl_uint at = 0; at < 5; at++)
        CHECK(clSetKernelArg(kernel, at, sizeof buffers[at], &buffers[at]));
    CHECK(clSetKernelArg(kernel, 5, sizeof pairs, &pairs));
    const size_t local = 128, global = (pairs + local - 1) / local * local;
    const double took_ms = opencl_time(&cl, kernel, 1, &global, &local, repeats);
    CHECK(clEnqueueReadBuffer(cl.queue, buffers[0], CL_TRUE, 0, bytes, calls, 0, NULL, NULL));
    CHECK(clEnqueueReadBuffer(cl.queue, buffers[1], CL_TRUE, 0, bytes, puts_, 0, NULL, NULL));

    double error = 0, sum = 0, largest = 0;
    const double r = 0.02, v = 0.30;
    for (size_t at = 0; at < count; at++) {
        const double stock = stocks[at], strike = strikes[at], time = years[at], root = sqrt(time);
        const double d1 = (log(stock / strike) + (r + 0.5 * v * v) * time) / (v * root),
                     discounted = strike * exp(-r * time);
        const double call = stock * below(d1) - discounted * below(d1 - v * root);
        const double put = discounted * (1 - below(d1 - v * root)) - stock * (1 - below(d1));
        const double one = fabs(calls[at] - call) + fabs(puts_[at] - put);
        error += one;
        sum += fabs(call) + fabs(put);
        if (!(one <= largest)) largest = one;
    }
    printf("black_scholes: %zu options by OpenCL on %s, %.3f ms, %.1f million options/s\n", count,
           cl.name, took_ms, 1e-3 * (double)count / took_ms);
    printf(
        "sum of errors %.2e of the sum (tolerance 2e-06), largest error %.2e (tolerance 2e-04)\n",
        error / sum, largest);
    return verdict(error / sum < 2e-6 && largest < 2e-4);
}
