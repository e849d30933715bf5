/* What the six applications share, in both versions: options, input, timing, checks and the report.
 *
 * An application has three parts. `<app>.c` knows the problem: its input, what is right, and its options. `opencl.c` and `water.c` are two
 * host programs for it, of which one is linked: plain OpenCL on one device, libWater on all. `program.c` calls both parts.
 */
#ifndef COMMON_H
#define COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

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
    uint64_t value[SETTINGS_MAX]; /* in the order of the application's settings; the first is --size */
    const char *kernel;           /* the file with the kernels */
    const char *devices;          /* a query for the devices (libWater) */
    const double *weights;        /* relative speeds of the devices; NULL: all the same (libWater) */
    unsigned weight_count;
    unsigned device_count;        /* as host_start() found */
    unsigned repeat;
    bool verify, json;
};

/* ---- The problem: <app>.c. `struct problem` is the application's own. ---- */

struct problem;
extern const char *const app_name;
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

/* ---- Helpers: helpers.c ---- */

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
double seconds(void);
/* Memory for `count` things of `size` bytes, or the end of the program. */
void *allocate(size_t count, size_t size);
size_t round_up(size_t number, size_t granularity);

/* Random numbers: the same on every machine, and any of them without those before it. */
uint64_t random_bits(uint64_t seed, uint64_t index);
/* In [0, 1), with 24 bits: exact in single precision. */
float random_unit(uint64_t seed, uint64_t index);
/* A whole number in [0, limit). */
uint64_t random_below(uint64_t seed, uint64_t index, uint64_t limit);

struct verdict verdict(bool right, const char *format, ...) __attribute__((format(printf, 2, 3)));

bool options_read(struct options *options, int argc, char **argv, int *exit_code);

#endif
