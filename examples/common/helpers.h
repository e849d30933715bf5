/* Small things that the examples share: failing, time, memory, random numbers, the command line. */
#ifndef HELPERS_H
#define HELPERS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The program's own: what its messages begin with. */
extern const char *const app_name;

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Since some moment: for differences. */
double seconds(void);
/* Memory for `count` things of `size` bytes, all 0, or the end of the program. */
void *allocate(size_t count, size_t size);
size_t round_up(size_t number, size_t granularity);

/* Random numbers: the same on every machine, and any of them without those before it. */
uint64_t random_bits(uint64_t seed, uint64_t index);
/* In [0, 1), with 24 bits: exact in single precision. */
float random_unit(uint64_t seed, uint64_t index);
/* A whole number in [0, limit). */
uint64_t random_below(uint64_t seed, uint64_t index, uint64_t limit);

/* The number above 0 that is the value of an option, or the end of the program. `text`: NULL where
 * the value is missing. */
uint64_t option_number(const char *name, const char *text);
/* `matrix_mul.cl` beside the program, wherever that is called from. */
const char *kernel_beside_program(void);

#endif
