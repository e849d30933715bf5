/* What the two applications share: options, time and energy of two versions of one computation,
 * checks, the report.
 *
 * An application computes the same thing twice, on the same devices: once with a kernel for each
 * step, and the host moving what devices need of each other between steps (libWater's events order
 * all of it, nothing waits for the program); once with one kernel that stays for all steps and
 * talks to those of the other devices itself. */
#ifndef APP_H
#define APP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <wtr_ext.h>

#include "../common/helpers.h"

#define SETTINGS_MAX 6
#define PES_MAX 64
#define LINE_BYTES 64 /* what different writers signal lies in different lines of memory */

/* One option: `--name N`. */
struct setting {
    const char *name, *help;
    uint64_t normal;
};

struct options {
    uint64_t value[SETTINGS_MAX]; /* in the order of the application's settings */
    uint64_t groups;              /* work-groups of each device */
    uint64_t repeat;
    uint64_t timeout_ms; /* how long a kernel waits for another; 0: as ggas.h says */
    const char *devices, *kernel;
    bool verify, json, proxy, host_only, device_only, refuse;
    double idle_s;
};

/* ---- The application: stencil.c or nbody.c ---- */

/* And app_name, which the helpers know. */
extern const struct setting app_settings[]; /* the last has no name */

/* A serial computation, which rounds otherwise, can be compared with after so many steps at most.
 */
extern const uint64_t app_checked_steps_max;
void app_set_steps(uint64_t steps);
/* Makes input, buffers, kernels and the heap. */
void app_create(const struct options *options, unsigned pes, wtr_device *const *devices);
/* Brings the input to the devices, where that version looks for it. */
void app_fill_host(void);
void app_fill_device(void);
/* All steps; returns when they are done. The second returns what the kernels say: 0 is well. */
void app_run_host(void);
int app_run_device(void);
/* Brings the result of that version to the program. */
const float *app_result_host(void);
const float *app_result_device(void);
size_t app_result_count(void); /* in floats */
/* The largest difference from a serial computation, in parts of what is tolerated. */
double app_error(const float *result);
wtr_heap *app_heap(void);
void app_release(void);

/* The part of `total` things that place `index` of `count` has; the first have one more where it
 * does not come out even. */
uint64_t share_of(uint64_t total, unsigned index, unsigned count);

#endif
