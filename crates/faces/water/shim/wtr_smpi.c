/* Support for programs that run under the network simulator SMPI. smpicc compiles this file, and
 * the program links it with wtr_mpi.c and the static library, because the simulator only gives each
 * rank its own copy of the executable. */
#include "wtr_mpi.h"

#include <mpi.h>
#include <setjmp.h>
#include <simgrid/cond.h>
#include <simgrid/mutex.h>
#include <stdio.h>
#include <stdlib.h>

/* The same as `Functions` in src/simulator.rs. */
struct functions {
    const struct wtr_mpi_shim *shim;
    uint64_t (*now_ns)(void);
    void (*sleep_ns)(uint64_t ns);
    void (*exit)(int code);
    void *(*room)(uint64_t bytes);
    void (*wait_ns)(uint64_t ns);
};

void wtr_rs_simulator(const struct functions *functions);

/* The program's own `main`, renamed at compile time. */
int wtr_program_main(int count, char **arguments);

static jmp_buf end;
static int end_code;

/* Ends a rank. Every rank except the root ends within wtr_init_devices. The simulator's `exit`
 * throws a C++ exception, at which frames of Rust would abort. So this jumps back to `main`, past
 * frames that have nothing left to do. */
static void end_rank(int code) {
    end_code = code;
    longjmp(end, 1);
}

/* Returns memory for bytes that nobody reads, or NULL if there is none. All ranks share it, so the
 * simulator does not copy what is sent from it or received into it. When a larger room is needed,
 * the smaller one stays mapped, because pieces under way may use it. */
static void *room(uint64_t bytes) {
    enum { ROOM_MIN = 16 << 20 }; /* one block of smpi/shared-malloc-blocksize, so one mapping */
    static void *there;
    static uint64_t size;
    if (size < bytes || there == NULL) {
        const uint64_t wanted = bytes > ROOM_MIN ? bytes : ROOM_MIN;
        void *larger = SMPI_SHARED_MALLOC(wanted);
        if (larger == NULL) return NULL;
        there = larger;
        size = wanted;
    }
    return there;
}

/* Wakes a rank that waits for a control message when the message is sent. Otherwise each poll would
 * be an event of the simulation, and polls would be most of the events. Each rank has a bell, in
 * memory that all ranks share. Only one rank runs at a time. */
struct bell {
    sg_mutex_t mutex;
    sg_cond_t cond;
    int is_rung, waits;
};

enum { CONTROL_TAG = 0 }; /* the same as in src/transport/mpi/mod.rs */
static const char TABLE[] = "WTR_SMPI_BELLS";
static struct bell *bells;
static int own;
static struct wtr_mpi_shim shim;

/* Opens the shim, and finds the table of bells. The first rank creates the table. Its address is in
 * the environment, which belongs to the process and is the only place that all ranks share. */
static int open_with_bells(struct wtr_mpi **run, int *threads) {
    const int code = wtr_mpi_shim()->open(run, threads);
    if (code != 0) return code;
    own = shim.rank(*run);
    void *table = NULL;
    const char *text = getenv(TABLE);
    if (text == NULL || sscanf(text, "%p", &table) != 1) {
        char place[32];
        table = calloc((size_t)shim.ranks(*run), sizeof *bells);
        if (table == NULL || snprintf(place, sizeof place, "%p", table) < 0 ||
            setenv(TABLE, place, 1) != 0)
            return -1;
    }
    bells = table;
    bells[own].mutex = sg_mutex_init();
    bells[own].cond = sg_cond_init();
    return 0;
}

static int send_and_ring(struct wtr_mpi *run, const void *bytes, int count, int to, int tag,
                         uint64_t id) {
    const int code = wtr_mpi_shim()->send(run, bytes, count, to, tag, id);
    if (code == 0 && tag == CONTROL_TAG) {
        bells[to].is_rung = 1;
        if (bells[to].waits) sg_cond_notify_one(bells[to].cond);
    }
    return code;
}

static void wait_ns(uint64_t ns) {
    struct bell *bell = &bells[own];
    if (!bell->is_rung && ns > 0) {
        sg_mutex_lock(bell->mutex);
        bell->waits = 1;
        sg_cond_wait_for(bell->cond, bell->mutex, (double)ns * 1e-9);
        bell->waits = 0;
        sg_mutex_unlock(bell->mutex);
    }
    bell->is_rung = 0;
}

int main(int count, char **arguments) {
    return setjmp(end) == 0 ? wtr_program_main(count, arguments) : end_code;
}

__attribute__((constructor)) static void tell_library(void) {
    shim = *wtr_mpi_shim();
    shim.open = open_with_bells;
    shim.send = send_and_ring;
    const struct functions functions = {&shim, shim.now_ns, shim.sleep_ns, end_rank, room, wait_ns};
    wtr_rs_simulator(&functions);
}
