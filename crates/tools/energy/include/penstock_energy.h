/* Energy of this node in joules, from all counters that it has, and core-seconds.
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
 *     else printf("%g J, net %g J, of %s\n", total.joules, total.net_joules, total.covered);
 *     penstock_energy_close(meter);
 *
 * Functions return 0 or a code, and penstock_energy_last_error() returns the reason. An unknown
 * number is NaN, never 0, and a text gives the reason. Structures begin with their size, which the
 * program sets, so that programs built with an older header keep working. Texts belong to the meter
 * and are valid until the next call with the same meter, except for penstock_energy_get_*. All
 * functions may be called from any thread; calls with the same meter wait for each other.
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
    PENSTOCK_ENERGY_EINVAL = -21001,  /* wrong argument: NULL, closed meter, wrong index or time */
    PENSTOCK_ENERGY_EORDER = -21002,  /* started twice, stopped before a start, nothing measured */
    PENSTOCK_ENERGY_ESYSTEM = -21003, /* the kernel refuses a thread, /proc/stat or the like */
    PENSTOCK_ENERGY_EMODEL = -21004,  /* the power model cannot be read */
    PENSTOCK_ENERGY_EDEFECT = -21005  /* a defect of this library */
};

typedef struct penstock_energy_meter penstock_energy_meter;

/* Members that are 0 or NULL mean the default. */
typedef struct {
    size_t size;             /* sizeof(penstock_energy_options) */
    const char *root;        /* directory that stands for /; default: PENSTOCK_ENERGY_ROOT or / */
    const char *nvml;        /* NVIDIA's library; default: PENSTOCK_ENERGY_NVML, or a search */
    const char *power_model; /* file with watts of busy and idle cores; needed for model_ members */
    double interval_s;       /* seconds between two samples of power; default 0.1 */
    double watch_s;          /* a counter that stands still for this time is dead; default 1 */
    int psys;                /* not 0: also try energy-psys; if dead, the kernel logs a warning */
} penstock_energy_options;

/* Figure of one channel, which is one source's view of one component. Before the first measurement,
 * only the texts are set. */
typedef struct {
    size_t size;           /* sizeof(penstock_energy_figure) */
    const char *component; /* "package-0", "dram-0", "gpu-1" */
    const char *source;    /* "nvml", "powercap", "perf", "hwmon" */
    const char *method;    /* "counter", "samples" */
    const char *detail;    /* the file, event or function */
    /* Why the channel has no figure; NULL if it has one, or may get one. The kind is one word, such
     * as "absent", "no_permission", "no_domain" or "dead_counter". */
    const char *unavailable;
    const char *unavailable_kind;
    const char *notes; /* notes for the reader, separated by \n; empty if there are none */
    int in_total;      /* not 0 if the total includes it */
    double seconds;    /* from the first to the last reading */
    double joules;     /* all energy */
    double net_joules; /* joules minus those of idle power */
    double mean_watts, min_watts, max_watts; /* the last two only for samples */
    double idle_watts, idle_before_watts, idle_after_watts;
    double step_s; /* seconds between changes of the source's value, as far as known */
} penstock_energy_figure;

/* Sum over packages, memory and accelerators: one figure each, of the most trusted source. */
typedef struct {
    size_t size;    /* sizeof(penstock_energy_total) */
    double seconds; /* duration of the measurement */
    double joules, net_joules, mean_watts, idle_watts;
    /* Components in the sum, separated by ", ". Only totals with the same ones are comparable. */
    const char *covered;
    const char *missing;     /* the other components, each with the reasons, separated by \n */
    const char *unavailable; /* why there is no total; NULL if there is one */
} penstock_energy_total;

/* Core-seconds of this process with its children that it waited for, and of the whole host. */
typedef struct {
    size_t size; /* sizeof(penstock_energy_cores) */
    double user, system, busy;
    double host_busy, host_idle, host_stolen;
} penstock_energy_cores;

/* Estimates of the power model from core-seconds. They are not measured. */
typedef struct {
    size_t size;              /* sizeof(penstock_energy_model) */
    double model_busy_joules; /* this process's core-seconds times the watts of a busy core */
    double model_host_joules; /* all cores of the host and the rest, for the whole time */
} penstock_energy_model;

/* Finds what can be measured. Takes milliseconds, or watch_s if a counter is dead. If `options` is
 * NULL, the defaults apply. */
int penstock_energy_open(const penstock_energy_options *options, penstock_energy_meter **meter);
void penstock_energy_close(penstock_energy_meter *meter); /* NULL is allowed */

/* Measures idle power before the start or after the stop, and sleeps meanwhile. At most 600 s. */
int penstock_energy_idle(penstock_energy_meter *meter, double seconds);
int penstock_energy_start(penstock_energy_meter *meter);
int penstock_energy_stop(penstock_energy_meter *meter);
/* Updates the figures to cover the time from the start until now. The measurement goes on. */
int penstock_energy_update(penstock_energy_meter *meter);

/* The figures are those of the last stop, idle or update. */
unsigned penstock_energy_num_figures(penstock_energy_meter *meter);
int penstock_energy_get_figure(penstock_energy_meter *meter, unsigned index,
                               penstock_energy_figure *figure);
int penstock_energy_get_total(penstock_energy_meter *meter, penstock_energy_total *total);
int penstock_energy_get_cores(penstock_energy_meter *meter, penstock_energy_cores *cores);
int penstock_energy_get_model(penstock_energy_meter *meter, penstock_energy_model *model);
/* Returns the report as `penstock energy --json` writes it, or NULL if nothing was measured yet. */
const char *penstock_energy_get_json(penstock_energy_meter *meter);

/* Returns a process's core time since it began, with all its threads. Cheap: two system calls. */
int penstock_energy_process_seconds(uint32_t pid, double *seconds);

/* Returns the error of this thread's last call, or NULL. Valid until the thread's next call. */
const char *penstock_energy_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
