/* For programs that run under the network simulator SMPI. Compiled by smpicc and linked into the program, together with wtr_mpi.c and
 * the static library: the simulator gives each rank its own copy of the executable, and of nothing else. */
#include "wtr_mpi.h"

#include <stdlib.h>

/* As `Functions` in src/simulator.rs. */
struct functions {
    const struct wtr_mpi_shim *shim;
    uint64_t (*now_ns)(void);
    void (*sleep_ns)(uint64_t ns);
    void (*exit)(int code);
};

void wtr_rs_simulator(const struct functions *functions);

/* smpicc makes this `exit` end the rank and not the process. */
static void end_rank(int code) { exit(code); }

__attribute__((constructor)) static void tell_library(void)
{
    const struct wtr_mpi_shim *shim = wtr_mpi_shim();
    const struct functions functions = {shim, shim->now_ns, shim->sleep_ns, end_rank};
    wtr_rs_simulator(&functions);
}
