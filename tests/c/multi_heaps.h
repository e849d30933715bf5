/* What multi_heaps.c and its kernels share. */
#ifndef MULTI_HEAPS_H
#define MULTI_HEAPS_H

#include "harness.h"

#define PES 2
#define BYTES 65536
/* Offsets in a part: signals from 0 on, results at RESULT, then data. */
#define RESULT 4096
#define DATA 8192

/* The source of the kernels. */
extern const char *const heap_kernels;

#endif
