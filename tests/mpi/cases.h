/* The random cases of the tests of MPI calls with device memory. */
#ifndef CASES_H
#define CASES_H

#include "area.h"

/* What a case works on. All ranks draw the same random numbers, so each rank knows the arguments of
 * the others. */
struct scene {
    int rank, ranks;
    MPI_Comm comm;
    MPI_Datatype base;
    struct area from, to;
    struct view out, in;
};

/* The two runs of a case: with the host's memory, then with the tried memory. */
#define EACH_RUN(SCENE, FROM, TO)                                           \
    for (int run_ = 0; run_ < 2; run_++)                                    \
        for (char *FROM = run_ ? (SCENE)->from.tried : (SCENE)->from.plain, \
                  *TO = run_ ? (SCENE)->to.tried : (SCENE)->to.plain;       \
             FROM != NULL; FROM = NULL, (void)TO)

/* Fills the areas with what each rank has, and chooses which of them lie on a device. */
void scene_fill(struct scene *scene);
/* Compares the areas. */
void scene_compare(const struct scene *scene, const char *name);

/* Each runs one random case. */
void case_message(struct scene *scene);
void case_many(struct scene *scene);
void case_persistent(struct scene *scene);
void case_sendrecv(struct scene *scene);
void case_collective(struct scene *scene);
void case_reduction(struct scene *scene);
void case_parts(struct scene *scene);
void case_intercommunicator(struct scene *scene);
void case_lanes(struct scene *scene);
void case_groups(struct scene *scene);

/* Each runs one fixed case. */
void case_apart(struct scene *scene);
void case_unused(struct scene *scene);
void case_bottom(struct scene *scene);
void case_cancelled(struct scene *scene);
void case_freed(struct scene *scene);
void case_peeked(struct scene *scene);
void case_short(struct scene *scene);
void case_nothing(struct scene *scene);
void case_refused(struct scene *scene);
void case_reopened(struct scene *scene);
void case_threads(struct scene *scene);
void case_worked(struct scene *scene);

/* Ends the pool's daemon in the middle of transfers. The calls must then fail. */
void case_lost(struct scene *scene, int daemon);

/* Returns the number of messages of all ranks that workers have moved. */
unsigned long long lanes_moved(const struct scene *scene);

/* Sends between devices until somebody ends a process. The calls must then fail. */
void case_killed(struct scene *scene);

/* Exchanges device memory between two ranks, alternately through the library and with copies that
 * the program makes itself: 16 MiB, or all sizes. Rank 0 writes the medians. */
void measure(const struct scene *scene, int all_sizes);

/* Waits for requests, in one of the ways of MPI. Stores the bytes that each received. */
void complete(int count, MPI_Request *requests, int way, int *bytes);
enum { WAYS = 8 };

#endif
