/* Energy of this node in joules, from whatever counters it has, and core-seconds always.
 *
 *     penstock_energy_meter *meter;
 *     penstock_energy_total total = { sizeof total };
 *     penstock_energy_open(NULL, &meter);
 *     penstock_energy_idle(meter, 5.0);
 *     penstock_energy_start(meter);
 *     work();
 *     penstock_energy_stop(meter);
 *     penstock_energy_idle(meter, 5.0);
 *     penstock_energy_get_total(meter, &total);
 *     if (total.unavailable) printf("unavailable (%s)\n", total.unavailable);
 *     else printf("%g J, net of idle %g J, of %s\n", total.joules, total.net_joules, total.covered);
 *     penstock_energy_close(meter);
 *
 * Functions return 0 or a code, and penstock_energy_last_error() says more. A number that is not known is NaN, never 0, and there is
 * a text that says why. Structs begin with their size, which the program sets: so that programs built with an older header stay right.
 * Texts belong to the meter and are valid until the next call with the same meter that is not penstock_energy_get_*. All functions may be
 * called from any thread; those with the same meter wait for each other.
 */
#ifndef PENSTOCK_ENERGY_H
#define PENSTOCK_ENERGY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PENSTOCK_ENERGY_SUCCESS = 0,
    PENSTOCK_ENERGY_EINVAL = -21001,  /* a wrong argument: NULL, a closed meter, an index or a time out of range */
    PENSTOCK_ENERGY_EORDER = -21002,  /* started twice, stopped before it was started, nothing measured yet */
    PENSTOCK_ENERGY_ESYSTEM = -21003, /* the kernel refuses something that measuring itself needs: a thread, /proc/stat */
    PENSTOCK_ENERGY_EMODEL = -21004,  /* the power model cannot be read */
    PENSTOCK_ENERGY_EDEFECT = -21005  /* a defect of this library */
};

typedef struct penstock_energy_meter penstock_energy_meter;

/* What is 0 or NULL is the default. */
typedef struct {
    size_t size;             /* sizeof(penstock_energy_options) */
    const char *root;        /* a directory that stands for /; default: PENSTOCK_ENERGY_ROOT, else / */
    const char *nvml;        /* NVIDIA's management library; default: PENSTOCK_ENERGY_NVML, else it is searched */
    const char *power_model; /* a file: watts of a busy and of an idle core; only then there are model_ figures */
    double interval_s;       /* between two samples of power; default 0.1 */
    double watch_s;          /* a counter that stands still so long is dead; default 1 */
    int psys;                /* not 0: also try the event energy-psys, which makes the kernel log a warning where it is dead */
} penstock_energy_options;

/* What one channel says: one source's view of one component. Before the first measurement only the texts are there. */
typedef struct {
    size_t size;           /* sizeof(penstock_energy_figure) */
    const char *component; /* "package-0", "dram-0", "gpu-1" */
    const char *source;    /* "nvml", "powercap", "perf", "hwmon" */
    const char *method;    /* "counter", "samples" */
    const char *detail;    /* which file, event or function */
    const char *unavailable;      /* why there is no figure; NULL if there is one, or nothing was measured yet */
    const char *unavailable_kind; /* the same in a word: "absent", "no_permission", "no_domain", "dead_counter", ... */
    const char *notes;     /* what to bear in mind; lines end with \n but for the last; empty if nothing */
    int in_total;          /* not 0: the total has it */
    double seconds;        /* from the first to the last reading */
    double joules;         /* all energy */
    double net_joules;     /* less what the component takes when idle */
    double mean_watts, min_watts, max_watts; /* the last two only of samples */
    double idle_watts, idle_before_watts, idle_after_watts;
    double step_s;         /* how often the source's value changes, as far as known */
} penstock_energy_figure;

/* The sum over packages, memory and accelerators: one figure each, of the most trusted source. */
typedef struct {
    size_t size;             /* sizeof(penstock_energy_total) */
    double seconds;          /* how long it took */
    double joules, net_joules, mean_watts, idle_watts;
    const char *covered;     /* components that are in it, with ", " between. Totals of different coverage cannot be compared */
    const char *missing;     /* a line for each component that is not, with the reasons; lines end with \n but for the last */
    const char *unavailable; /* why there is no total; NULL if there is one */
} penstock_energy_total;

/* Core-seconds: of this process with its children that were waited for, and of the whole host. */
typedef struct {
    size_t size; /* sizeof(penstock_energy_cores) */
    double user, system, busy;
    double host_busy, host_idle, host_stolen;
} penstock_energy_cores;

/* What a power model makes of core-seconds. Estimated, not measured. */
typedef struct {
    size_t size; /* sizeof(penstock_energy_model) */
    double model_busy_joules; /* this process's core-seconds at the watts of a busy core */
    double model_host_joules; /* all cores of the host and the rest, for the whole time */
} penstock_energy_model;

/* Finds what can be measured. Takes some milliseconds, or watch_s where a counter is dead. `options` may be NULL. */
int penstock_energy_open(const penstock_energy_options *options, penstock_energy_meter **meter);
void penstock_energy_close(penstock_energy_meter *meter); /* NULL is allowed */

/* Measures idle power and sleeps meanwhile: before the start, and again after the stop. At most 600 s. */
int penstock_energy_idle(penstock_energy_meter *meter, double seconds);
int penstock_energy_start(penstock_energy_meter *meter);
int penstock_energy_stop(penstock_energy_meter *meter);
/* While it runs: the figures from the start to now. It runs on. */
int penstock_energy_update(penstock_energy_meter *meter);

/* Figures: as of the last stop, idle or update. */
unsigned penstock_energy_num_figures(penstock_energy_meter *meter);
int penstock_energy_get_figure(penstock_energy_meter *meter, unsigned index, penstock_energy_figure *figure);
int penstock_energy_get_total(penstock_energy_meter *meter, penstock_energy_total *total);
int penstock_energy_get_cores(penstock_energy_meter *meter, penstock_energy_cores *cores);
int penstock_energy_get_model(penstock_energy_meter *meter, penstock_energy_model *model);
/* All of it, as `penstock energy --json` writes it. NULL if nothing was measured yet. */
const char *penstock_energy_get_json(penstock_energy_meter *meter);

/* Core time that a process has used since it began, with all its threads. One system call. */
int penstock_energy_process_seconds(uint32_t pid, double *seconds);

/* What went wrong in this thread's last call; NULL if nothing did. Valid until the thread's next call. */
const char *penstock_energy_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
