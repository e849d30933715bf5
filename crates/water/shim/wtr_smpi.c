/* For programs that run under the network simulator SMPI. Compiled by smpicc and linked into the program, together with wtr_mpi.c and
 * the static library: the simulator gives each rank its own copy of the executable, and of nothing else. */
#include "wtr_mpi.h"

#include <setjmp.h>

/* As `Functions` in src/simulator.rs. */
struct functions {
    const struct wtr_mpi_shim *shim;
    uint64_t (*now_ns)(void);
    void (*sleep_ns)(uint64_t ns);
    void (*exit)(int code);
};

void wtr_rs_simulator(const struct functions *functions);

/* The program's own `main`, renamed when it was compiled. */
int wtr_program_main(int count, char **arguments);

static jmp_buf end;
static int end_code;

/* Each rank but the root ends within wtr_init_devices. The simulator's `exit` throws an exception of C++, which frames of Rust stop with
 * an abort; so this goes back to `main`, past frames that have nothing left to do. */
static void end_rank(int code)
{
    end_code = code;
    longjmp(end, 1);
}

int main(int count, char **arguments)
{
    return setjmp(end) == 0 ? wtr_program_main(count, arguments) : end_code;
}

__attribute__((constructor)) static void tell_library(void)
{
    const struct wtr_mpi_shim *shim = wtr_mpi_shim();
    const struct functions functions = {shim, shim->now_ns, shim->sleep_ns, end_rank};
    wtr_rs_simulator(&functions);
}
