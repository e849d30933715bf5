/* What the six applications share, in both versions: options, input, timing, checks and the report.
 *
 * An application has three parts. `<app>.c` knows the problem: its input, what is right, and its
 * options. `opencl.c` and `water.c` are two host programs for it, of which one is linked: plain
 * OpenCL on one device, libWater on all. `program.c` calls both parts.
 */
#ifndef COMMON_H
#define COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../common/helpers.h"

#define SETTINGS_MAX 6

/* A number that the preprocessor knows, as text. */
#define TEXT_OF(number) TEXT_OF_(number)
#define TEXT_OF_(text) #text

/* One option of an application: `--name N`. */
struct setting {
    const char *name, *help;
    uint64_t normal, paper; /* paper: the value of Table 4, with --paper */
    bool is_flag;           /* takes no number: 1 if given, else 0 */
};

/* How close a result has to be, and what was compared. */
struct verdict {
    bool right;
    char how[160];
};

struct options {
    uint64_t
        value[SETTINGS_MAX]; /* in the order of the application's settings; the first is --size */
    const char *kernel;      /* the file with the kernels */
    const char *devices;     /* a query for the devices (libWater) */
    const double *weights;   /* relative speeds of the devices; NULL: all the same (libWater) */
    unsigned weight_count;
    unsigned device_count; /* as host_start() found */
    unsigned repeat;
    bool verify, json;
};

/* ---- The problem: <app>.c. `struct problem` is the application's own; so is app_name, which the
 * helpers know. ---- */

struct problem;
extern const struct setting app_settings[]; /* the last one has no name */

struct problem *problem_create(const struct options *options);
/* Overwrites what earlier runs computed, so that a check cannot find it. */
void problem_forget(struct problem *problem);
struct verdict problem_verify(const struct problem *problem);
void problem_release(struct problem *problem);

/* ---- The host program: opencl.c or water.c. ---- */

extern const char *const host_name;

/* Finds the devices; returns their number. */
unsigned host_start(const struct options *options);
/* Everything from source code and input to output. */
void host_solve(const struct options *options, struct problem *problem);
void host_stop(void);

/* ---- What both use, beside helpers.h: program.c and options.c. ---- */

struct verdict verdict(bool right, const char *format, ...) __attribute__((format(printf, 2, 3)));

bool options_read(struct options *options, int argc, char **argv, int *exit_code);

#endif
