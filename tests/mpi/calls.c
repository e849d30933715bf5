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
        {"lanes", case_lanes},
    },
  corners[] = {
      {"bottom", case_bottom},   {"cancelled", case_cancelled}, {"freed", case_freed},
      {"peeked", case_peeked},   {"short", case_short},         {"nothing", case_nothing},
      {"refused", case_refused}, {"threads", case_threads},     {"worked", case_worked},
      {"apart", case_apart},     {"unused", case_unused},
  };

enum { KINDS = sizeof cases / sizeof *cases, CORNERS = sizeof corners / sizeof *corners };

static int compare(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

/* Exchanges 16 MiB between devices of two ranks, alternately through the library and with copies
 * that the program makes itself. Rank 0 writes the medians. */
static void measure(const struct scene *scene) {
    enum { BYTES = 16 << 20, TIMES = 15 };
    double took[2][TIMES];
    int partner = scene->rank ^ 1;
    char *device = device_new(BYTES), *host = malloc(BYTES);
    CHECK(host != NULL);
    memset(host, scene->rank, BYTES);
    device_copy(device, host, BYTES);
    for (int i = -2; i < 2 * TIMES && scene->rank < 2; i++) {
        int copies = i & 1;
        void *buffer = copies ? host : device;
        double start = MPI_Wtime();
        for (int turn = 0; turn < 2; turn++) {
            int sends = turn == scene->rank;
            if (sends && copies) device_copy(host, device, BYTES);
            int tag = 200 + copies;
            if (sends)
                MPI_Send(buffer, BYTES, MPI_CHAR, partner, tag, scene->comm);
            else
                MPI_Recv(buffer, BYTES, MPI_CHAR, partner, tag, scene->comm, MPI_STATUS_IGNORE);
            if (!sends && copies) device_copy(device, host, BYTES);
        }
        if (i >= 0) took[copies][i / 2] = (MPI_Wtime() - start) / 2;
    }
    if (scene->rank == 0) {
        for (int way = 0; way < 2; way++) qsort(took[way], TIMES, sizeof(double), compare);
        printf("16 MiB between two devices: %.2f ms, with copies by the program %.2f ms\n",
               took[0][TIMES / 2] * 1e3, took[1][TIMES / 2] * 1e3);
    }
    free(host);
}

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
    if (only == NULL) measure(&scene);
    unsigned long long moved = lanes_moved(&scene);
    if (scene.rank == 0) printf("workers: %llu messages\n", moved);
    if (scene.rank == 0) printf("calls: %d passed, 0 failed, 0 skipped\n", ran);
    view_free(&scene.out);
    view_free(&scene.in);
    MPI_Comm_free(&scene.comm);
    MPI_Finalize();
    return 0;
}
