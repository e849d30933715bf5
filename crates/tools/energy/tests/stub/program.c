/* Uses the C interface. It prints how far it is, line by line, and goes on when it reads a line. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "penstock_energy.h"

#define CHECK(condition)                                                      \
    do {                                                                      \
        if (!(condition)) {                                                   \
            const char *error = penstock_energy_last_error();                 \
            printf("line %d: not %s; last error: %s\n", __LINE__, #condition, \
                   error ? error : "none");                                   \
            return 1;                                                         \
        }                                                                     \
    } while (0)

static void pause_at(const char *where) {
    char line[16];
    printf("%s\n", where);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) _exit(3);
}

static int misuse(penstock_energy_meter *meter) {
    penstock_energy_total total = {.size = sizeof total};
    penstock_energy_figure figure = {.size = sizeof figure};
    CHECK(penstock_energy_open(NULL, NULL) == PENSTOCK_ENERGY_EINVAL);
    CHECK(strstr(penstock_energy_last_error(), "NULL"));
    CHECK(penstock_energy_start(NULL) == PENSTOCK_ENERGY_EINVAL);
    CHECK(penstock_energy_start((penstock_energy_meter *)&total) == PENSTOCK_ENERGY_EINVAL);
    CHECK(penstock_energy_stop(meter) == PENSTOCK_ENERGY_EORDER);
    CHECK(penstock_energy_get_total(meter, &total) == PENSTOCK_ENERGY_EORDER);
    CHECK(penstock_energy_get_json(meter) == NULL);
    CHECK(penstock_energy_idle(meter, -1.0) == PENSTOCK_ENERGY_EINVAL);
    CHECK(penstock_energy_idle(meter, NAN) == PENSTOCK_ENERGY_EINVAL);
    CHECK(penstock_energy_get_figure(meter, 1000, &figure) == PENSTOCK_ENERGY_EINVAL);
    figure.size = 0;
    CHECK(penstock_energy_get_figure(meter, 0, &figure) == PENSTOCK_ENERGY_EINVAL);
    CHECK(penstock_energy_get_figure(meter, 0, NULL) == PENSTOCK_ENERGY_EINVAL);
    penstock_energy_options wrong = {.size = sizeof wrong, .power_model = "/no/such/model"};
    penstock_energy_meter *none = NULL;
    CHECK(penstock_energy_open(&wrong, &none) == PENSTOCK_ENERGY_EMODEL && !none);
    CHECK(penstock_energy_num_figures(meter) > 0 && !penstock_energy_last_error());
    return 0;
}

int main(int argc, char **argv) {
    penstock_energy_options options = {.size = sizeof options, .watch_s = 0.3, .interval_s = 0.01};
    penstock_energy_meter *meter;
    penstock_energy_total total = {.size = sizeof total};
    penstock_energy_cores cores = {.size = sizeof cores};
    penstock_energy_model model = {.size = sizeof model};
    double seconds = -1;
    if (argc != 3) return 2;
    options.root = argv[1];
    options.power_model = argv[2];
    options.nvml = "/no/such/libnvidia-ml.so.1";
    CHECK(penstock_energy_open(&options, &meter) == 0);
    pause_at("opened");
    if (misuse(meter)) return 1;
    CHECK(penstock_energy_start(meter) == 0);
    pause_at("started");
    CHECK(penstock_energy_update(meter) == 0 && penstock_energy_get_total(meter, &total) == 0);
    printf("so far %.9g\n", total.joules);
    pause_at("updated");
    CHECK(penstock_energy_stop(meter) == 0 && penstock_energy_get_total(meter, &total) == 0);
    CHECK(!total.unavailable && isnan(total.net_joules));
    printf("total %.9g J of %s\n%s\n", total.joules, total.covered, total.missing);
    for (unsigned i = 0; i < penstock_energy_num_figures(meter); i++) {
        penstock_energy_figure figure = {.size = sizeof figure};
        CHECK(penstock_energy_get_figure(meter, i, &figure) == 0 && figure.size == sizeof figure);
        CHECK(isnan(figure.joules) == (figure.unavailable != NULL));
        printf("%s %s: %s\n", figure.source, figure.component,
               figure.unavailable ? figure.unavailable_kind : "measured");
    }
    /* As a program with an older header would: what is behind its structure must not change. */
    struct {
        size_t size;
        double seconds;
        double behind;
    } old = {2 * sizeof(size_t), -1, 42};
    CHECK(penstock_energy_get_total(meter, (penstock_energy_total *)&old) == 0 && old.seconds > 0 &&
          old.behind == 42);
    CHECK(penstock_energy_get_cores(meter, &cores) == 0 && cores.busy >= 0 && cores.host_busy >= 0);
    CHECK(penstock_energy_get_model(meter, &model) == 0 && model.model_host_joules > 0);
    CHECK(strstr(penstock_energy_get_json(meter), "\"model_host_joules\""));
    CHECK(penstock_energy_process_seconds((uint32_t)getpid(), &seconds) == 0 && seconds > 0);
    CHECK(penstock_energy_process_seconds(0x7ffffff0, &seconds) == PENSTOCK_ENERGY_ESYSTEM);
    penstock_energy_close(meter);
    CHECK(penstock_energy_start(meter) == PENSTOCK_ENERGY_EINVAL);
    penstock_energy_close(NULL);
    printf("end\n");
    return 0;
}
