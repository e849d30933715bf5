// Prices of European options by the Black-Scholes formula, two options for each thread.
#include "common/example.h"

namespace {

constexpr float riskless_rate = 0.02F;
constexpr float volatility = 0.30F;

// The cumulative normal distribution, by the polynomial of Abramowitz and Stegun, 26.2.17 (error
// below 7.5e-8).
__device__ inline float normal_cdf(float x) {
    const float t = 1.0F / (1.0F + 0.2316419F * fabsf(x));
    const float tail =
        0.39894228040143267794F * __expf(-0.5F * x * x) *
        (t * (0.319381530F +
              t * (-0.356563782F + t * (1.781477937F + t * (-1.821255978F + t * 1.330274429F)))));
    return x > 0 ? 1.0F - tail : tail;
}

struct Price {
    float call, put;
};

__device__ inline Price price_of(float stock, float strike, float years) {
    const float root = 1.0F / rsqrtf(years);
    const float d1 = __fdividef(__logf(stock / strike) +
                                    (riskless_rate + 0.5F * volatility * volatility) * years,
                                volatility * root);
    const float below_d1 = normal_cdf(d1), below_d2 = normal_cdf(d1 - volatility * root);
    const float discounted = strike * __expf(-riskless_rate * years);
    return {stock * below_d1 - discounted * below_d2,
            discounted * (1.0F - below_d2) - stock * (1.0F - below_d1)};
}

constexpr unsigned block = 128;

__global__ __launch_bounds__(block) void black_scholes(
    float2 *__restrict__ calls, float2 *__restrict__ puts, const float2 *__restrict__ stocks,
    const float2 *__restrict__ strikes, const float2 *__restrict__ years, unsigned pairs) {
    const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= pairs) return;
    const Price first = price_of(stocks[at].x, strikes[at].x, years[at].x);
    const Price second = price_of(stocks[at].y, strikes[at].y, years[at].y);
    calls[at] = make_float2(first.call, second.call);
    puts[at] = make_float2(first.put, second.put);
}

// The same with the C library's own distribution, in double precision.
void reference(double stock, double strike, double years, double &call, double &put) {
    const auto below = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
    const double r = riskless_rate, v = volatility, root = std::sqrt(years);
    const double d1 = (std::log(stock / strike) + (r + 0.5 * v * v) * years) / (v * root);
    const double discounted = strike * std::exp(-r * years);
    call = stock * below(d1) - discounted * below(d1 - v * root);
    put = discounted * (1.0 - below(d1 - v * root)) - stock * (1.0 - below(d1));
}

} // namespace

int main(int argc, char **argv) {
    const example::Options options =
        example::read_options(argc, argv, "options", 4'000'000, 200'000, 32);
    const std::size_t count = example::divide_up(options.size, 2) * 2;
    example::Random random(5347);
    const std::vector<float> stocks = random.floats(count, 5.0F, 30.0F),
                             strikes = random.floats(count, 1.0F, 100.0F),
                             years = random.floats(count, 0.25F, 10.0F);

    cudaDeviceProp device{};
    CHECK(cudaGetDeviceProperties(&device, 0));
    const example::DeviceArray<float> on_stocks(stocks), on_strikes(strikes), on_years(years),
        on_calls(count), on_puts(count);
    const auto pairs_of = [](const example::DeviceArray<float> &array) {
        return reinterpret_cast<float2 *>(array.data());
    };
    const unsigned pairs = static_cast<unsigned>(count / 2),
                   blocks = static_cast<unsigned>(example::divide_up(pairs, block));
    const auto launch = [&] {
        black_scholes<<<blocks, block>>>(pairs_of(on_calls), pairs_of(on_puts), pairs_of(on_stocks),
                                         pairs_of(on_strikes), pairs_of(on_years), pairs);
        CHECK_LAUNCH();
    };
    launch(); // the first one is not counted
    CHECK(cudaDeviceSynchronize());
    example::EventTimer timer;
    timer.start();
    for (std::size_t repeat = 0; repeat < options.repeats; repeat++) launch();
    const double took_ms = timer.stop_ms() / static_cast<double>(options.repeats);
    std::printf("BlackScholes: %zu options on %s, %.3f ms, %.1f million options/s, %.2f GB/s\n",
                count, device.name, took_ms, 1e-3 * count / took_ms,
                1e-6 * 5 * count * sizeof(float) / took_ms);

    const std::vector<float> calls = on_calls.to_host(), puts = on_puts.to_host();
    double error = 0, sum = 0, largest = 0;
    for (std::size_t at = 0; at < count; at++) {
        double call = 0, put = 0;
        reference(stocks[at], strikes[at], years[at], call, put);
        const double one = std::fabs(calls[at] - call) + std::fabs(puts[at] - put);
        error += one;
        sum += std::fabs(call) + std::fabs(put);
        if (!(one <= largest)) largest = one;
    }
    // The polynomial is good for 7.5e-8 of the stock's price, the fast functions for a few units in
    // the last place of it.
    constexpr double mean_max = 2e-6, single_max = 2e-4;
    std::printf(
        "sum of errors %.2e of the sum (tolerance %.0e), largest error %.2e (tolerance %.0e)\n",
        error / sum, mean_max, largest, single_max);
    return example::verdict(error / sum < mean_max && largest < single_max);
}
