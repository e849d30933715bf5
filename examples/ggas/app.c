/* main(), options, measuring and the report: the same for both applications. */
#include "app.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <penstock_energy.h>

#define REPEAT_MAX 1000
#define RANKS_MAX 64

uint64_t share_of(uint64_t total, unsigned index, unsigned count) {
    return total / count + (index < total % count);
}

/* ---- Options ---- */

static void print_help(FILE *file) {
    fprintf(
        file,
        "%s: the same computation with the host between devices, and with kernels that talk to each other\n\n",
        app_name);
    for (const struct setting *setting = app_settings; setting->name; setting++)
        fprintf(file, "  --%-14s N  %s (default %llu)\n", setting->name, setting->help,
                (unsigned long long)setting->normal);
    fputs(
        "  --groups         N  work-groups of each device (default 1)\n"
        "  --repeat         N  runs of each version, in turns; medians count (default 3)\n"
        "  --timeout-ms     N  how long a kernel waits for another (default 10000)\n"
        "  --devices    QUERY  the devices (default \"SELECT ALL\")\n"
        "  --kernel      FILE  the file with the kernels (default: beside the program)\n"
        "  --idle           S  seconds of idle power before and after, for energy net of idle (default 0)\n"
        "  --only     VERSION  host or device\n"
        "  --proxy             send what goes to other processes, also where memory could be shared\n"
        "  --refuse            ask for more work-groups than can run, and expect to be refused\n"
        "  --verify            compare with a serial computation, and both versions bit by bit\n"
        "  --json              print one line of JSON\n",
        file);
}

static bool read_setting(struct options *options, const char *name, const char *value) {
    for (size_t i = 0; app_settings[i].name; i++)
        if (strncmp(name, "--", 2) == 0 && strcmp(name + 2, app_settings[i].name) == 0) {
            options->value[i] = option_number(name, value);
            return true;
        }
    return false;
}

static bool read_value(struct options *options, const char *name, const char *value) {
    if (strcmp(name, "--groups") == 0)
        options->groups = option_number(name, value);
    else if (strcmp(name, "--repeat") == 0)
        options->repeat = option_number(name, value);
    else if (strcmp(name, "--timeout-ms") == 0)
        options->timeout_ms = option_number(name, value);
    else if (strcmp(name, "--devices") == 0)
        options->devices = value;
    else if (strcmp(name, "--kernel") == 0)
        options->kernel = value;
    else if (strcmp(name, "--idle") == 0)
        options->idle_s = value ? atof(value) : 0;
    else if (strcmp(name, "--only") == 0 && value) {
        options->host_only = strcmp(value, "host") == 0;
        options->device_only = strcmp(value, "device") == 0;
        if (!options->host_only && !options->device_only) fail("--only wants host or device");
    } else
        return read_setting(options, name, value);
    return true;
}

static bool read_flag(struct options *options, const char *name) {
    if (strcmp(name, "--verify") == 0)
        options->verify = true;
    else if (strcmp(name, "--json") == 0)
        options->json = true;
    else if (strcmp(name, "--proxy") == 0)
        options->proxy = true;
    else if (strcmp(name, "--refuse") == 0)
        options->refuse = true;
    else
        return false;
    return true;
}

static void read_options(struct options *options, int argc, char **argv) {
    *options = (struct options){.groups = 1, .repeat = 3, .devices = "SELECT ALL"};
    for (size_t i = 0; app_settings[i].name; i++) options->value[i] = app_settings[i].normal;
    for (int i = 1; i < argc; i++) {
        if (read_flag(options, argv[i])) continue;
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!read_value(options, argv[i], value)) {
            const bool asked = strcmp(argv[i], "--help") == 0;
            if (!asked) fprintf(stderr, "%s: no such option: %s\n", app_name, argv[i]);
            print_help(asked ? stdout : stderr);
            exit(asked ? 0 : 2);
        }
        if (!value) fail("%s wants a value", argv[i]);
        i++;
    }
    if (options->repeat > REPEAT_MAX) fail("--repeat is at most %d", REPEAT_MAX);
    if (!options->kernel) options->kernel = kernel_beside_program();
}

/* ---- Core-seconds: of this process and the other ranks on this host, which are children of the
 * same launcher. ---- */

static int parent_of(long pid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    const size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    const char *after = strrchr(text, ')');
    int parent = -1;
    return after && sscanf(after + 1, " %*c %d", &parent) == 1 ? parent : -1;
}

static bool is_rank(long pid) {
    char path[64], target[PATH_MAX], own[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%ld/exe", pid);
    const ssize_t length = readlink(path, target, sizeof target - 1),
                  own_length = readlink("/proc/self/exe", own, sizeof own - 1);
    if (length < 0 || own_length < 0) return false;
    target[length] = own[own_length] = 0;
    const char *name = strrchr(target, '/');
    return strcmp(target, own) == 0 || (name && strcmp(name + 1, "wtrd") == 0);
}

static unsigned find_ranks(uint32_t *pids) {
    unsigned count = 0;
    pids[count++] = (uint32_t)getpid();
    if (!getenv("OMPI_COMM_WORLD_SIZE") && !getenv("PMI_SIZE")) return count;
    DIR *folder = opendir("/proc");
    for (struct dirent *entry; folder && count < RANKS_MAX && (entry = readdir(folder));) {
        const long pid = strtol(entry->d_name, NULL, 10);
        if (pid > 0 && pid != getpid() && parent_of(pid) == getppid() && is_rank(pid))
            pids[count++] = (uint32_t)pid;
    }
    if (folder) closedir(folder);
    return count;
}

static double core_seconds(const uint32_t *pids, unsigned count) {
    double sum = 0;
    for (unsigned i = 0; i < count; i++) {
        double seconds = 0;
        if (penstock_energy_process_seconds(pids[i], &seconds) == PENSTOCK_ENERGY_SUCCESS)
            sum += seconds;
    }
    return sum;
}

/* Which setting is --steps. */
static size_t app_steps_setting(void) {
    size_t i = 0;
    while (strcmp(app_settings[i].name, "steps") != 0) i++;
    return i;
}

/* ---- Measuring ---- */

struct figures {
    double times_s[REPEAT_MAX], cores_s, joules, net_joules;
    char unavailable[256]; /* why there are no joules; empty if there are */
    char covered[256];
};

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, uint64_t count) {
    double sorted[REPEAT_MAX];
    memcpy(sorted, values, count * sizeof *values);
    qsort(sorted, count, sizeof *sorted, compare);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static void take_energy(penstock_energy_meter *meter, struct figures *figures) {
    penstock_energy_total total = {.size = sizeof total};
    if (penstock_energy_get_total(meter, &total) != PENSTOCK_ENERGY_SUCCESS) {
        const char *why = penstock_energy_last_error();
        snprintf(figures->unavailable, sizeof figures->unavailable, "%s", why ? why : "unknown");
    } else if (total.unavailable) {
        snprintf(figures->unavailable, sizeof figures->unavailable, "%s", total.unavailable);
    } else {
        figures->joules = total.joules;
        figures->net_joules = total.net_joules;
        snprintf(figures->covered, sizeof figures->covered, "%s", total.covered);
    }
    for (char *at = figures->unavailable; *at; at++)
        if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ') *at = ' ';
}

/* All runs of one version, and what they took. */
static void measure(const struct options *options, bool on_devices, const uint32_t *pids,
                    unsigned ranks, struct figures *figures) {
    penstock_energy_meter *meter = NULL;
    const penstock_energy_options energy = {.size = sizeof energy, .watch_s = 0.2};
    if (penstock_energy_open(&energy, &meter) != PENSTOCK_ENERGY_SUCCESS)
        fail("no energy meter: %s", penstock_energy_last_error());
    if (options->idle_s > 0) penstock_energy_idle(meter, options->idle_s);
    (on_devices ? app_fill_device : app_fill_host)();
    const double cores_before = core_seconds(pids, ranks);
    if (penstock_energy_start(meter) != PENSTOCK_ENERGY_SUCCESS)
        fail("the energy meter: %s", penstock_energy_last_error());
    for (uint64_t i = 0; i < options->repeat; i++) {
        /* Only the first one starts from the input: more steps take as long. */
        const double start = seconds();
        if (on_devices) {
            const int status = app_run_device();
            if (status != 0) fail("the kernels ended with status %d", status);
        } else {
            app_run_host();
        }
        figures->times_s[i] = seconds() - start;
    }
    penstock_energy_stop(meter);
    figures->cores_s = (core_seconds(pids, ranks) - cores_before) / (double)options->repeat;
    if (options->idle_s > 0) penstock_energy_idle(meter, options->idle_s);
    take_energy(meter, figures);
    figures->joules /= (double)options->repeat;
    figures->net_joules /= (double)options->repeat;
    penstock_energy_close(meter);
}

/* ---- The report ---- */

struct checks {
    double error_host, error_device;
    bool equal;
};

static bool is_right(const struct options *options, const struct checks *checks) {
    const bool host = options->device_only || checks->error_host <= 1,
               device = options->host_only || checks->error_device <= 1;
    return !options->verify || (host && device && checks->equal);
}

static const char *path_name(void) {
    wtr_heap *heap = app_heap();
    const unsigned pes = heap ? wtr_heap_num_pes(heap) : 0;
    int worst = 0;
    for (unsigned from = 0; from < pes; from++)
        for (unsigned to = 0; to < pes; to++) {
            const int path = wtr_heap_path(heap, from, to);
            if (path > worst) worst = path;
        }
    return worst == WTR_PATH_PROXY    ? "proxy"
           : worst == WTR_PATH_SHARED ? "shared"
           : worst == WTR_PATH_OWN    ? "own"
                                      : "none";
}

static void print_version(const char *name, const struct options *options,
                          const struct figures *figures, bool ran) {
    if (!ran) {
        printf(", \"%s\": null", name);
        return;
    }
    printf(", \"%s\": {\"seconds\": %.9f, \"core_seconds\": %.9f", name,
           median(figures->times_s, options->repeat), figures->cores_s);
    if (figures->unavailable[0])
        printf(", \"joules\": null, \"unavailable\": \"%s\"}", figures->unavailable);
    else
        printf(", \"joules\": %.6g, \"net_joules\": %.6g, \"covered\": \"%s\"}", figures->joules,
               figures->net_joules, figures->covered);
}

static void report_json(const struct options *options, unsigned pes, unsigned ranks,
                        const char *path, const struct figures *host, const struct figures *device,
                        const struct checks *checks) {
    printf("{\"app\": \"%s\"", app_name);
    for (size_t i = 0; app_settings[i].name; i++)
        printf(", \"%s\": %llu", app_settings[i].name, (unsigned long long)options->value[i]);
    printf(", \"pes\": %u, \"ranks\": %u, \"groups\": %llu, \"path\": \"%s\", \"repeat\": %llu",
           pes, ranks, (unsigned long long)options->groups, path,
           (unsigned long long)options->repeat);
    print_version("host", options, host, !options->device_only);
    print_version("device", options, device, !options->host_only);
    if (options->verify)
        printf(", \"error_host\": %.3g, \"error_device\": %.3g, \"equal\": %s", checks->error_host,
               checks->error_device, checks->equal ? "true" : "false");
    printf(", \"verified\": %s}\n", !options->verify            ? "null"
                                    : is_right(options, checks) ? "true"
                                                                : "false");
}

static void report_text(const struct options *options, unsigned pes, const char *path,
                        const struct figures *host, const struct figures *device,
                        const struct checks *checks) {
    printf("%s:", app_name);
    for (size_t i = 0; app_settings[i].name; i++)
        printf(" %s %llu,", app_settings[i].name, (unsigned long long)options->value[i]);
    printf(" %u devices, %llu work-groups each, path: %s\n", pes,
           (unsigned long long)options->groups, path);
    const struct figures *both[] = {options->device_only ? NULL : host,
                                    options->host_only ? NULL : device};
    const char *const names[] = {"host between steps", "one kernel"};
    for (int i = 0; i < 2; i++) {
        if (!both[i]) continue;
        printf("  %-20s %.6f s, %.6f core-seconds, ", names[i],
               median(both[i]->times_s, options->repeat), both[i]->cores_s);
        if (both[i]->unavailable[0])
            printf("joules unavailable (%s)\n", both[i]->unavailable);
        else
            printf("%.6g J, net of idle %.6g J, of %s\n", both[i]->joules, both[i]->net_joules,
                   both[i]->covered);
    }
    if (both[0] && both[1])
        printf("  one kernel is %.2f times as fast\n",
               median(host->times_s, options->repeat) / median(device->times_s, options->repeat));
    if (options->verify)
        printf("%s: error %.3g and %.3g of what is tolerated, both versions %s\n",
               is_right(options, checks) ? "right" : "WRONG", checks->error_host,
               checks->error_device, checks->equal ? "equal" : "DIFFERENT");
}

/* ---- The program ---- */

/* Both versions from the input on, compared with a serial computation. */
static void check(const struct options *options, uint64_t steps, struct checks *checks) {
    app_set_steps(steps < app_checked_steps_max ? steps : app_checked_steps_max);
    if (!options->device_only) {
        app_fill_host();
        app_run_host();
        checks->error_host = app_error(app_result_host());
    }
    if (!options->host_only) {
        app_fill_device();
        const int status = app_run_device();
        if (status != 0) fail("the kernels ended with status %d", status);
        checks->error_device = app_error(app_result_device());
    }
    app_set_steps(steps);
}

/* A version's result, to be compared with the other's: the next version may use the same buffers.
 */
static float *kept(const float *result) {
    float *copy = allocate(app_result_count(), sizeof *copy);
    memcpy(copy, result, app_result_count() * sizeof *copy);
    return copy;
}

static void tell(const wtr_error *error, void *user) {
    (void)user;
    fprintf(stderr, "%s: %s (code %d)\n", app_name, error->message, error->code);
    fflush(stderr);
    _exit(3); /* other ranks may be gone: there is nothing to wait for */
}

static void expect_refusal(const wtr_error *error, void *user) {
    *(int *)user = error->code;
    printf("refused: %s\n", error->message);
}

int main(int argc, char **argv) {
    struct options options;
    read_options(&options, argc, argv);
    /* On the other ranks of a run under mpirun, this call does not return. */
    wtr_init_devices_v(options.devices);
    const unsigned pes = (unsigned)wtr_get_num_devices();
    if (pes > PES_MAX) fail("%u devices are more than %d", pes, PES_MAX);
    wtr_set_error_handler(tell, NULL);
    wtr_device *devices[PES_MAX];
    for (unsigned i = 0; i < pes; i++) devices[i] = wtr_get_device("SELECT POS %u", i + 1);
    app_create(&options, pes, devices);
    if (options.refuse) {
        int code = 0;
        wtr_set_error_handler(expect_refusal, &code);
        app_fill_device();
        app_run_device();
        wtr_set_error_handler(tell, NULL);
        app_release();
        wtr_release_devices();
        return code == WTR_ERESIDENT ? 0 : 1;
    }
    uint32_t pids[RANKS_MAX];
    const unsigned ranks = find_ranks(pids);
    static struct figures host, device;
    struct checks checks = {.equal = true};
    if (options.verify) check(&options, options.value[app_steps_setting()], &checks);
    float *results[2] = {NULL, NULL};
    if (!options.device_only) {
        measure(&options, false, pids, ranks, &host);
        results[0] = kept(app_result_host());
    }
    if (!options.host_only) {
        measure(&options, true, pids, ranks, &device);
        results[1] = kept(app_result_device());
    }
    /* All that was measured, bit by bit. */
    if (results[0] && results[1])
        checks.equal = memcmp(results[0], results[1], app_result_count() * sizeof(float)) == 0;
    free(results[0]);
    free(results[1]);
    const char *path = path_name();
    app_release();
    wtr_release_devices();
    if (options.json)
        report_json(&options, pes, ranks, path, &host, &device, &checks);
    else
        report_text(&options, pes, path, &host, &device, &checks);
    return is_right(&options, &checks) ? 0 : 1;
}
