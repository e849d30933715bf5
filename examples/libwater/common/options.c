/* The command line. */
#include "common.h"

#include <string.h>

#define WEIGHTS_MAX 1024

static void print_help(FILE *file) {
    fprintf(file, "%s-%s: an application of the libWater paper\n\n", app_name, host_name);
    for (const struct setting *setting = app_settings; setting->name; setting++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s", setting->name, setting->is_flag ? "" : " N");
        fprintf(file, "  %-20s %s", left, setting->help);
        if (!setting->is_flag)
            fprintf(file, " (default %llu)", (unsigned long long)setting->normal);
        fprintf(file, "\n");
    }
    fputs(
        "  --paper              the sizes of the paper\n"
        "  --verify             check the result\n"
        "  --repeat N           solve it N times; the best time counts (default 1)\n"
        "  --devices QUERY      libWater: the devices to use (default \"SELECT ALL\")\n"
        "  --weights W,W,...    libWater: relative speeds of the devices, for their parts (default: equal parts)\n"
        "  --kernel FILE        the file with the kernels (default: beside the program)\n"
        "  --json               print one line of JSON\n",
        file);
}

static void read_weights(struct options *options, const char *text) {
    double *weights = allocate(WEIGHTS_MAX, sizeof *weights);
    for (const char *at = text; at && *at;) {
        char *end;
        const double weight = strtod(at, &end);
        if (end == at || weight <= 0 || (*end && *end != ',') ||
            options->weight_count == WEIGHTS_MAX)
            fail("--weights wants at most %d numbers above 0 with commas, not %s", WEIGHTS_MAX,
                 text);
        weights[options->weight_count++] = weight;
        at = *end ? end + 1 : end;
    }
    if (options->weight_count == 0) fail("--weights wants numbers");
    options->weights = weights;
}

static bool read_setting(struct options *options, const char *name, const char *value,
                         bool *takes_value) {
    for (size_t i = 0; app_settings[i].name; i++) {
        if (strncmp(name, "--", 2) != 0 || strcmp(name + 2, app_settings[i].name) != 0) continue;
        *takes_value = !app_settings[i].is_flag;
        options->value[i] = *takes_value ? option_number(name, value) : 1;
        return true;
    }
    return false;
}

bool options_read(struct options *options, int argc, char **argv, int *exit_code) {
    *options = (struct options){.repeat = 1};
    bool paper = false;
    for (int i = 1; i < argc; i++) paper |= strcmp(argv[i], "--paper") == 0;
    for (size_t i = 0; app_settings[i].name; i++)
        options->value[i] = paper ? app_settings[i].paper : app_settings[i].normal;
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool takes_value = false;
        if (strcmp(name, "--verify") == 0)
            options->verify = true;
        else if (strcmp(name, "--json") == 0)
            options->json = true;
        else if (strcmp(name, "--paper") == 0)
            continue;
        else if (!read_setting(options, name, value, &takes_value)) {
            takes_value = true;
            if (strcmp(name, "--repeat") == 0)
                options->repeat = (unsigned)option_number(name, value);
            else if (strcmp(name, "--devices") == 0)
                options->devices = value;
            else if (strcmp(name, "--weights") == 0)
                read_weights(options, value);
            else if (strcmp(name, "--kernel") == 0)
                options->kernel = value;
            else {
                bool asked = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
                if (!asked) fprintf(stderr, "%s: no such option: %s\n", app_name, name);
                print_help(asked ? stdout : stderr);
                *exit_code = asked ? 0 : 2;
                return false;
            }
        }
        if (takes_value && !value) fail("%s wants a value", name);
        i += takes_value;
    }
    if ((options->devices || options->weights) && strcmp(host_name, "water") != 0)
        fail(
            "--devices and --weights are for the libWater version: this one takes the first device");
    if (!options->devices) options->devices = "SELECT ALL";
    if (!options->kernel) options->kernel = kernel_beside_program();
    return true;
}
