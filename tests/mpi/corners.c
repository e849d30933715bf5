#include "cases.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Absolute addresses in a datatype. */
void case_bottom(struct scene *scene) {
    int lengths[2] = {3, 5};
    scene_fill(scene);
    for (int run = 0; run < 2; run++) {
        char *from = run ? scene->from.tried : scene->from.plain;
        char *to = run ? scene->to.tried : scene->to.plain;
        MPI_Aint out[2] = {(MPI_Aint)from + 400, (MPI_Aint)from + 40};
        MPI_Aint in[2] = {(MPI_Aint)to + 8, (MPI_Aint)to + 800};
        MPI_Datatype types[2];
        MPI_Type_create_hindexed(2, lengths, out, MPI_INT, &types[0]);
        MPI_Type_create_hindexed(2, lengths, in, MPI_INT, &types[1]);
        for (int t = 0; t < 2; t++) MPI_Type_commit(&types[t]);
        MPI_Sendrecv(MPI_BOTTOM, 1, types[0], (scene->rank + 1) % scene->ranks, 1, MPI_BOTTOM, 1,
                     types[1], (scene->rank + scene->ranks - 1) % scene->ranks, 1, scene->comm,
                     MPI_STATUS_IGNORE);
        for (int t = 0; t < 2; t++) MPI_Type_free(&types[t]);
    }
    scene_compare(scene, "MPI_BOTTOM");
}

/* A receive that is cancelled leaves the device as it was. */
void case_cancelled(struct scene *scene) {
    MPI_Request request;
    MPI_Status status;
    int is_cancelled = 0;
    area_fill(&scene->from, 1, 1);
    area_fill(&scene->to, 2, 1);
    MPI_Irecv(scene->to.tried, 1000, MPI_CHAR, MPI_ANY_SOURCE, 99, scene->comm, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &is_cancelled);
    CHECK(is_cancelled);
    scene_compare(scene, "cancelled");
}

/* Requests that the program frees while they are under way. */
void case_freed(struct scene *scene) {
    int next = (scene->rank + 1) % scene->ranks;
    int before = (scene->rank + scene->ranks - 1) % scene->ranks;
    scene_fill(scene);
    for (int run = 0; run < 2; run++) {
        char *from = run ? scene->from.tried : scene->from.plain;
        char *to = run ? scene->to.tried : scene->to.plain;
        MPI_Request request;
        MPI_Isend(from, 60000, MPI_CHAR, next, 4, scene->comm, &request);
        MPI_Request_free(&request);
        CHECK(request == MPI_REQUEST_NULL);
        /* The send must not use the memory that another call uses now. */
        MPI_Sendrecv(from + 60000, 60000, MPI_CHAR, next, 5, to + 60000, 60000, MPI_CHAR, before, 5,
                     scene->comm, MPI_STATUS_IGNORE);
        MPI_Recv(to, 60000, MPI_CHAR, before, 4, scene->comm, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(scene->comm);
    scene_compare(scene, "freed");
}

/* MPI_Request_get_status tells that the bytes are there, once. */
void case_peeked(struct scene *scene) {
    MPI_Request request;
    int flag = 0;
    area_fill(&scene->from, 3, 1);
    area_fill(&scene->to, 3, 1);
    area_fill(&scene->to, 4, 1);
    MPI_Irecv(scene->to.tried, 500, MPI_CHAR, scene->rank, 6, scene->comm, &request);
    MPI_Send(scene->from.tried, 500, MPI_CHAR, scene->rank, 6, scene->comm);
    while (!flag) MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
    memcpy(scene->to.plain, scene->from.plain, 500);
    scene_compare(scene, "peeked");
    area_change(&scene->to, 1);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    scene_compare(scene, "peeked, then waited");
}

/* A message that is too long for the receiver's buffer. */
void case_short(struct scene *scene) {
    MPI_Request request;
    int code, class = 0;
    area_fill(&scene->from, 5, 1);
    area_fill(&scene->to, 6, 1);
    MPI_Comm_set_errhandler(scene->comm, MPI_ERRORS_RETURN);
    MPI_Isend(scene->from.tried, 100, MPI_INT, scene->rank, 6, scene->comm, &request);
    code = MPI_Recv(scene->to.tried, 50, MPI_INT, scene->rank, 6, scene->comm, MPI_STATUS_IGNORE);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_TRUNCATE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_set_errhandler(scene->comm, MPI_ERRORS_ARE_FATAL);
}

/* Counts of zero, and partners that do not exist. */
void case_nothing(struct scene *scene) {
    MPI_Request requests[2];
    MPI_Status status;
    int count = -1, zeros[8] = {0};
    area_fill(&scene->from, 7, 1);
    area_fill(&scene->to, 8, 1);
    char *from = scene->from.tried, *to = scene->to.tried;
    MPI_Irecv(to, 0, MPI_INT, scene->rank, 2, scene->comm, &requests[0]);
    MPI_Isend(from, 0, MPI_INT, scene->rank, 2, scene->comm, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Irecv(to, 10, MPI_INT, MPI_PROC_NULL, 2, scene->comm, &requests[0]);
    MPI_Isend(from, 10, MPI_INT, MPI_PROC_NULL, 2, scene->comm, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Recv(to, 10, MPI_INT, MPI_PROC_NULL, 2, scene->comm, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && count == 0);
    MPI_Bcast(to, 0, MPI_INT, 0, scene->comm);
    MPI_Allreduce(from, to, 0, MPI_INT, MPI_SUM, scene->comm);
    MPI_Alltoallv(from, zeros, zeros, MPI_INT, to, zeros, zeros, MPI_INT, scene->comm);
    scene_compare(scene, "nothing");
}

static void expect(int code, int wanted) {
    char text[MPI_MAX_ERROR_STRING];
    int class = 0, length = 0;
    MPI_Error_class(code, &class);
    MPI_Error_string(code, text, &length);
    if (class != wanted) fprintf(stderr, "error class %d, expected %d: %s\n", class, wanted, text);
    CHECK(class == wanted);
}

/* What is not supported fails with an error that says so. */
void case_refused(struct scene *scene) {
    int sizes[1] = {8}, kinds[1] = {MPI_DISTRIBUTE_BLOCK}, by[1] = {MPI_DISTRIBUTE_DFLT_DARG};
    int grid[1] = {1}, position = 0, counts[8] = {0};
    MPI_Datatype spread;
    MPI_Request request;
    char *device = scene->from.device, host[64];
    MPI_Comm_set_errhandler(scene->comm, MPI_ERRORS_RETURN);
    expect(MPI_Reduce(device, host, 1, MPI_INT, MPI_SUM, 0, scene->comm), MPI_ERR_BUFFER);
    expect(MPI_Gather(host, 1, MPI_INT, device, 1, MPI_INT, 0, scene->comm), MPI_ERR_BUFFER);
    expect(MPI_Scatterv(device, counts, counts, MPI_INT, host, 1, MPI_INT, 0, scene->comm),
           MPI_ERR_BUFFER);
    expect(MPI_Iallreduce(host, device, 1, MPI_INT, MPI_SUM, scene->comm, &request),
           MPI_ERR_BUFFER);
    expect(MPI_Pack(device, 1, MPI_INT, host, 64, &position, scene->comm), MPI_ERR_BUFFER);
    MPI_Type_create_darray(1, 0, 1, sizes, kinds, by, grid, MPI_ORDER_C, MPI_INT, &spread);
    MPI_Type_commit(&spread);
    expect(MPI_Send(device, 1, spread, 0, 0, scene->comm), MPI_ERR_TYPE);
    MPI_Type_free(&spread);
    /* Behind the end of the allocation. */
    expect(MPI_Send(device + AREA_BYTES - 4, 1 << 20, MPI_INT, 0, 0, scene->comm), MPI_ERR_OTHER);
    MPI_Comm_set_errhandler(scene->comm, MPI_ERRORS_ARE_FATAL);
}

/* Messages between pieces of work of the device itself. */
void case_worked(struct scene *scene) {
    const size_t half = AREA_BYTES / 2;
    int next = (scene->rank + 1) % scene->ranks;
    int before = (scene->rank + scene->ranks - 1) % scene->ranks;
    for (int round = 0; round < 20; round++) {
        area_fill(&scene->from, 13, 1);
        area_fill(&scene->to, 14, 1);
        unsigned char value = (unsigned char)(round + 1 + 40 * scene->rank);
        memset(scene->from.plain, value, half);
        memset(scene->to.plain, round + 1 + 40 * before, 2 * half);
        device_fill(scene->from.tried, value, half);
        MPI_Sendrecv(scene->from.tried, (int)half, MPI_CHAR, next, 8, scene->to.tried, (int)half,
                     MPI_CHAR, before, 8, scene->comm, MPI_STATUS_IGNORE);
        device_move(scene->to.tried + half, scene->to.tried, half);
        scene_compare(scene, "worked");
    }
}

void case_lost(struct scene *scene, int daemon) {
    int code = MPI_SUCCESS, class = 0;
    area_fill(&scene->from, 11, 1);
    area_fill(&scene->to, 12, 1);
    MPI_Comm_set_errhandler(scene->comm, MPI_ERRORS_RETURN);
    MPI_Barrier(scene->comm);
    for (int i = 0; code == MPI_SUCCESS; i++) {
        if (i == 20 && scene->rank == 0) CHECK(kill(daemon, SIGKILL) == 0);
        code = MPI_Sendrecv(scene->from.tried, 60000, MPI_CHAR, scene->rank, 0, scene->to.tried,
                            60000, MPI_CHAR, scene->rank, 0, scene->comm, MPI_STATUS_IGNORE);
    }
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_OTHER);
    /* Memory of the host still reaches the others. */
    CHECK(MPI_Allreduce(MPI_IN_PLACE, &class, 1, MPI_INT, MPI_MAX, scene->comm) == MPI_SUCCESS);
    MPI_Comm_set_errhandler(scene->comm, MPI_ERRORS_ARE_FATAL);
}

struct partner {
    struct scene *scene;
    char *from, *to;
    int tag;
};

static void *exchange(void *of) {
    struct partner *it = of;
    for (int i = 0; i < 200; i++) {
        MPI_Request requests[2];
        MPI_Irecv(it->to, 300, MPI_INT, it->scene->rank, it->tag, it->scene->comm, &requests[0]);
        MPI_Isend(it->from, 300, MPI_INT, it->scene->rank, it->tag, it->scene->comm, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    return NULL;
}

/* Threads without a CUDA context exchange messages at the same time. */
void case_threads(struct scene *scene) {
    enum { THREADS = 4, PART = 4096 };
    pthread_t threads[THREADS];
    struct partner partners[THREADS];
    int level = 0;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE) return;
    area_fill(&scene->from, 9, 1);
    area_fill(&scene->to, 10, 1);
    for (int t = 0; t < THREADS; t++) {
        partners[t] = (struct partner){scene, scene->from.tried + t * PART,
                                       scene->to.tried + t * PART, 20 + t};
        memcpy(scene->to.plain + t * PART, scene->from.plain + t * PART, 1200);
        CHECK(pthread_create(&threads[t], NULL, exchange, &partners[t]) == 0);
    }
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    scene_compare(scene, "threads");
}
