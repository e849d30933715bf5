/* Random MPI calls with memory of devices, compared with the same calls on memory of the host.
 *
 *     calls [SEED [CASES]]
 *
 * If PENSTOCK_TEST_VICTIM is the process id of the pool's daemon, the program only ends that
 * daemon, and looks what its calls do then.
 *
 * With CALLS_SINGLE in the environment, only one thread calls MPI.
 *
 * Each rank writes only what is wrong. Rank 0 writes a summary. */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    void (*run)(struct scene *scene);
} cases[] =
    {
        {"message", case_message},       {"many", case_many},
        {"persistent", case_persistent}, {"sendrecv", case_sendrecv},
        {"collective", case_collective}, {"reduction", case_reduction},
        {"parts", case_parts},           {"intercommunicator", case_intercommunicator},
        {"lanes", case_lanes},           {"groups", case_groups},
    },
  corners[] = {
      {"bottom", case_bottom},     {"cancelled", case_cancelled}, {"freed", case_freed},
      {"peeked", case_peeked},     {"short", case_short},         {"nothing", case_nothing},
      {"refused", case_refused},   {"threads", case_threads},     {"worked", case_worked},
      {"reopened", case_reopened}, {"apart", case_apart},         {"unused", case_unused},
  };

enum { KINDS = sizeof cases / sizeof *cases, CORNERS = sizeof corners / sizeof *corners };

int main(int argc, char **argv) {
    struct scene scene = {0};
    static const MPI_Datatype bases[] = {MPI_INT, MPI_DOUBLE, MPI_CHAR, MPI_SHORT_INT};
    int level, ran = 0, limit = argc > 2 ? atoi(argv[2]) : 200;
    const char *only = getenv("CALLS_ONLY");
    const char *single = getenv("CALLS_SINGLE");
    int wanted = single != NULL ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE;
    MPI_Init_thread(&argc, &argv, wanted, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &scene.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &scene.ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &scene.comm);
    MPI_Comm_set_errhandler(scene.comm, MPI_ERRORS_ARE_FATAL);
    device_open(scene.rank);
    area_make(&scene.from);
    area_make(&scene.to);
    static char bsends[4 << 20];
    MPI_Buffer_attach(bsends, sizeof bsends);
    random_state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const char *victim = getenv("PENSTOCK_TEST_VICTIM");
    if (getenv("CALLS_KILLED") != NULL) case_killed(&scene), ran++, limit = 0, only = "";
    if (victim != NULL) case_lost(&scene, atoi(victim)), ran++, limit = 0, only = "";
    for (int c = 0; c < CORNERS; c++)
        if (only == NULL || strcmp(only, corners[c].name) == 0) corners[c].run(&scene), ran++;
    for (int c = 0; c < limit; c++) {
        int kind = c % KINDS;
        scene.base = bases[random_below(4)];
        if (only != NULL && strcmp(only, cases[kind].name) != 0) continue;
        cases[kind].run(&scene);
        ran++;
    }
    int measures = only != NULL && strcmp(only, "measure") == 0;
    if (only == NULL || measures) measure(&scene, measures), ran++;
    unsigned long long moved = lanes_moved(&scene);
    if (scene.rank == 0) printf("workers: %llu messages\n", moved);
    if (scene.rank == 0) printf("calls: %d passed, 0 failed, 0 skipped\n", ran);
    view_free(&scene.out);
    view_free(&scene.in);
    MPI_Comm_free(&scene.comm);
    MPI_Finalize();
    return 0;
}
