/* main(): the same for all applications and both versions. */
#include "common.h"

#include <stdarg.h>

struct verdict verdict(bool right, const char *format, ...) {
    struct verdict verdict = {.right = right};
    va_list list;
    va_start(list, format);
    vsnprintf(verdict.how, sizeof verdict.how, format, list);
    va_end(list);
    return verdict;
}

static void report(const struct options *options, double first_s, double best_s,
                   const struct verdict *verdict) {
    const unsigned devices = options->device_count;
    if (options->json) {
        printf("{\"app\": \"%s\", \"version\": \"%s\"", app_name, host_name);
        for (size_t i = 0; app_settings[i].name; i++)
            printf(", \"%s\": %llu", app_settings[i].name, (unsigned long long)options->value[i]);
        printf(", \"devices\": %u, \"repeat\": %u, \"first_seconds\": %.6f, \"seconds\": %.6f",
               devices, options->repeat, first_s, best_s);
        printf(", \"verified\": %s, \"check\": \"%s\"}\n",
               !verdict         ? "null"
               : verdict->right ? "true"
                                : "false",
               verdict ? verdict->how : "");
        return;
    }
    printf("%s (%s):", app_name, host_name);
    for (size_t i = 0; app_settings[i].name; i++)
        printf(" %s %llu%s", app_settings[i].name, (unsigned long long)options->value[i],
               app_settings[i + 1].name ? "," : "");
    printf("; %u device%s: %.3f s\n", devices, devices == 1 ? "" : "s", best_s);
    if (verdict) printf("%s: %s\n", verdict->right ? "right" : "WRONG", verdict->how);
}

int main(int argc, char **argv) {
    struct options options;
    int exit_code = 0;
    if (!options_read(&options, argc, argv, &exit_code)) return exit_code;
    /* First of all: on the other nodes of a run under mpirun, this call does not return. */
    const unsigned devices = host_start(&options);
    if (options.weights && options.weight_count != devices)
        fail("%u weights for %u devices", options.weight_count, devices);
    if (options.value[0] < devices)
        fail("size %llu is too small for %u devices", (unsigned long long)options.value[0],
             devices);
    options.device_count = devices;
    struct problem *problem = problem_create(&options);
    double first_s = 0, best_s = 0;
    struct verdict verdict = {.right = true};
    for (unsigned i = 0; i < options.repeat && verdict.right; i++) {
        problem_forget(problem);
        const double start_s = seconds();
        host_solve(&options, problem);
        const double took_s = seconds() - start_s;
        if (i == 0) first_s = best_s = took_s;
        if (took_s < best_s) best_s = took_s;
        /* At once, and before host_stop(), which waits for what is under way: the result has to be
         * there now. */
        if (options.verify) verdict = problem_verify(problem);
    }
    host_stop();
    report(&options, first_s, best_s, options.verify ? &verdict : NULL);
    problem_release(problem);
    free((void *)options.weights);
    return verdict.right ? 0 : 1;
}
