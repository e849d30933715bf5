#include "cases.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MESSAGES_MAX = 12 };

/* One message to the next rank. All ranks draw the same numbers, and each has the same messages. */
struct sent {
    int elements, room, tag;
    /* Whether the tried run uses the host's memory on this side. */
    int from_host, to_host;
    char *from, *to;
};

/* What all messages of a run have in common. */
struct run {
    struct scene *scene;
    struct sent *messages;
    int count, next, before, way;
    MPI_Request requests[2 * MESSAGES_MAX];
    int bytes[2 * MESSAGES_MAX];
};

static void receive_later(struct run *run, int m) {
    const struct sent *it = &run->messages[m];
    MPI_Irecv(it->to, it->room, run->scene->base, run->before, it->tag, run->scene->comm,
              &run->requests[m]);
}

static void send_later(struct run *run, int m) {
    const struct sent *it = &run->messages[m];
    MPI_Request *request = &run->requests[run->count + m];
    MPI_Comm comm = run->scene->comm;
    if (run->way % 2 == 0)
        MPI_Isend(it->from, it->elements, run->scene->base, run->next, it->tag, comm, request);
    else
        MPI_Issend(it->from, it->elements, run->scene->base, run->next, it->tag, comm, request);
}

/* All receives are posted before any message is sent, or not. */
static void all_later(struct run *run, int waits) {
    for (int m = 0; m < run->count; m++) receive_later(run, m);
    if (waits) MPI_Barrier(run->scene->comm);
    for (int m = 0; m < run->count; m++) send_later(run, m);
    complete(2 * run->count, run->requests, run->way, run->bytes);
}

static void sends_now(struct run *run) {
    MPI_Datatype base = run->scene->base;
    MPI_Comm comm = run->scene->comm;
    for (int m = 0; m < run->count; m++) receive_later(run, m);
    for (int m = 0; m < run->count; m++) {
        const struct sent *it = &run->messages[m];
        if (run->way % 2 == 0)
            MPI_Send(it->from, it->elements, base, run->next, it->tag, comm);
        else
            MPI_Ssend(it->from, it->elements, base, run->next, it->tag, comm);
    }
    complete(run->count, run->requests, run->way, run->bytes);
}

static void receives_now(struct run *run) {
    for (int m = 0; m < run->count; m++) send_later(run, m);
    for (int m = 0; m < run->count; m++) {
        const struct sent *it = &run->messages[m];
        MPI_Status status;
        MPI_Recv(it->to, it->room, run->scene->base, run->before, it->tag, run->scene->comm,
                 &status);
        MPI_Get_count(&status, MPI_BYTE, &run->bytes[m]);
    }
    complete(run->count, run->requests + run->count, run->way, run->bytes + run->count);
}

static void exchanges(struct run *run) {
    for (int m = 0; m < run->count; m++) {
        const struct sent *it = &run->messages[m];
        MPI_Status status;
        MPI_Sendrecv(it->from, it->elements, run->scene->base, run->next, it->tag, it->to, it->room,
                     run->scene->base, run->before, it->tag, run->scene->comm, &status);
        MPI_Get_count(&status, MPI_BYTE, &run->bytes[m]);
    }
}

/* Persistent requests, each of which starts twice. */
static void persists(struct run *run) {
    MPI_Comm comm = run->scene->comm;
    MPI_Datatype base = run->scene->base;
    int count = run->count;
    for (int m = 0; m < count; m++) {
        const struct sent *it = &run->messages[m];
        MPI_Recv_init(it->to, it->room, base, run->before, it->tag, comm, &run->requests[m]);
        if (run->way % 2 == 0)
            MPI_Send_init(it->from, it->elements, base, run->next, it->tag, comm,
                          &run->requests[count + m]);
        else
            MPI_Ssend_init(it->from, it->elements, base, run->next, it->tag, comm,
                           &run->requests[count + m]);
    }
    for (int round = 0; round < 2; round++) {
        MPI_Startall(count, run->requests);
        if (round == 0) MPI_Barrier(comm);
        MPI_Startall(count, run->requests + count);
        complete(2 * count, run->requests, run->way, run->bytes);
    }
    for (int r = 0; r < 2 * count; r++) MPI_Request_free(&run->requests[r]);
}

static void exchange(struct run *run, int form) {
    switch (form) {
    case 0: all_later(run, 1); break;
    case 1: all_later(run, 0); break;
    case 2: sends_now(run); break;
    case 3: receives_now(run); break;
    case 4: persists(run); break;
    default: exchanges(run); break;
    }
}

/* Messages of one source and tag, to and from both kinds of memory. The communicator is new, and no
 * wildcard and no probe looks at it, so the workers may move the bytes. */
void case_lanes(struct scene *shared) {
    struct scene own = *shared, *scene = &own;
    const size_t slice = AREA_BYTES / MESSAGES_MAX / 16 * 16;
    struct sent messages[MESSAGES_MAX];
    struct run run = {.scene = scene, .messages = messages};
    int form = random_below(6), size = 0;
    char *aside = malloc(AREA_BYTES);
    CHECK(aside != NULL);
    MPI_Comm_dup(shared->comm, &own.comm);
    MPI_Comm_set_errhandler(own.comm, MPI_ERRORS_ARE_FATAL);
    run.count = 1 + random_below(MESSAGES_MAX);
    run.way = random_below(WAYS);
    run.next = (scene->rank + 1) % scene->ranks;
    run.before = (scene->rank + scene->ranks - 1) % scene->ranks;
    MPI_Type_size(scene->base, &size);
    for (int m = 0; m < run.count; m++) {
        int most = (int)(slice / 16), elements = random_below(3) == 0 ? random_below(40) : most;
        messages[m] = (struct sent){.elements = elements - random_below(elements + 1) / 2,
                                    .room = elements,
                                    .tag = 100 + random_below(2),
                                    .from_host = random_below(5) == 0,
                                    .to_host = random_below(5) == 0};
    }
    scene_fill(scene);
    for (int tried = 0; tried < 2; tried++) {
        for (int m = 0; m < run.count; m++) {
            struct sent *it = &messages[m];
            size_t at = (size_t)m * slice;
            it->from = (tried && !it->from_host ? scene->from.tried : scene->from.plain) + at;
            it->to = (!tried ? scene->to.plain : it->to_host ? aside : scene->to.tried) + at;
            if (tried && it->to_host) device_copy(aside + at, scene->to.tried + at, slice);
        }
        memset(run.bytes, 0xff, sizeof run.bytes);
        exchange(&run, form);
        for (int m = 0; m < run.count; m++)
            CHECK(run.bytes[m] == messages[m].elements * size || run.way == 1);
    }
    for (int m = 0; m < run.count; m++)
        if (messages[m].to_host) {
            device_copy(scene->to.tried + (size_t)m * slice, messages[m].to, slice);
        }
    scene_compare(scene, "lanes");
    MPI_Comm_free(&own.comm);
    free(aside);
}

/* A receive that names any source and any tag closes the path only until it has ended. */
void case_reopened(struct scene *scene) {
    enum { BYTES = 1 << 16, TIMES = 4, TAG = 400 };
    const char *least = getenv("PENSTOCK_MPI_WORKERS");
    unsigned long long before;
    MPI_Request request, wild;
    area_fill(&scene->from, 15, 1);
    area_fill(&scene->to, 16, 1);
    before = lanes_moved(scene);
    for (int i = 0; i < TIMES; i++) {
        char *to = scene->to.tried;
        MPI_Status status;
        if (scene->rank == 1) {
            MPI_Irecv(to, 100, MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, scene->comm, &wild);
            /* Behind the first receive, it gets the second message. */
            MPI_Irecv(to + 100, 100, MPI_CHAR, 0, TAG, scene->comm, &request);
            MPI_Barrier(scene->comm);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            MPI_Wait(&wild, &status);
            CHECK(status.MPI_SOURCE == 0 && status.MPI_TAG == TAG);
            MPI_Irecv(to + 200, BYTES, MPI_CHAR, 0, TAG, scene->comm, &request);
        } else {
            MPI_Barrier(scene->comm);
            if (scene->rank == 0)
                for (int m = 0; m < 2; m++)
                    MPI_Send(scene->from.tried + 100 * m, 100, MPI_CHAR, 1, TAG, scene->comm);
        }
        MPI_Barrier(scene->comm);
        if (scene->rank == 0)
            MPI_Send(scene->from.tried + 200, BYTES, MPI_CHAR, 1, TAG, scene->comm);
        if (scene->rank == 1) MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (scene->rank == 1) {
        MPI_Recv(scene->to.plain, BYTES + 200, MPI_CHAR, 0, TAG, scene->comm, MPI_STATUS_IGNORE);
        scene_compare(scene, "reopened");
    } else if (scene->rank == 0) {
        MPI_Send(scene->from.plain, BYTES + 200, MPI_CHAR, 1, TAG, scene->comm);
    }
    int takes_path = least != NULL && atoi(least) > 0 && atoi(least) <= BYTES;
    CHECK(lanes_moved(scene) - before >= TIMES || !takes_path || scene->ranks < 2);
}

/* Rank 0 sends long messages to rank 1 and short ones to the last rank, waits for one after the
 * other, and at once uses the memory of each again. So each wait must be for the transfer of its
 * own message. The transfers to two ranks have no order. */
void case_apart(struct scene *scene) {
    enum { COUNT = 6, LONG = 16 << 20, SHORT = 1 << 20, ROUNDS = 2 };
    MPI_Request requests[COUNT];
    MPI_Comm comm;
    char *device[COUNT], *host = malloc(LONG);
    int last = scene->ranks - 1;
    CHECK(host != NULL);
    MPI_Comm_dup(scene->comm, &comm);
    for (int m = 0; m < COUNT; m++) device[m] = device_new(LONG);
    for (int round = 0; round < ROUNDS; round++) {
        for (int m = 0; m < COUNT; m++) {
            int bytes = m % 2 == 0 ? LONG : SHORT, to = m % 2 == 0 ? 1 : last;
            requests[m] = MPI_REQUEST_NULL;
            if (scene->rank == 0) device_fill(device[m], (unsigned char)(1 + m), (size_t)bytes);
            if (scene->rank == to)
                MPI_Irecv(device[m], bytes, MPI_CHAR, 0, 320, comm, &requests[m]);
        }
        MPI_Barrier(comm);
        for (int m = 0; m < COUNT && scene->rank == 0; m++) {
            int bytes = m % 2 == 0 ? LONG : SHORT, to = m % 2 == 0 ? 1 : last;
            MPI_Isend(device[m], bytes, MPI_CHAR, to, 320, comm, &requests[m]);
            for (int before = 0; before < m; before++) CHECK(requests[before] != requests[m]);
        }
        for (int m = 0; m < COUNT; m++) {
            int bytes = m % 2 == 0 ? LONG : SHORT, is_mine = requests[m] != MPI_REQUEST_NULL;
            MPI_Wait(&requests[m], MPI_STATUS_IGNORE);
            if (scene->rank == 0) device_fill(device[m], 99, (size_t)bytes);
            if (scene->rank == 0 || !is_mine) continue;
            device_copy(host, device[m], (size_t)bytes);
            for (int i = 0; i < bytes; i++) CHECK(host[i] == 1 + m);
        }
    }
    for (int m = 0; m < COUNT; m++) device_free(device[m]);
    MPI_Comm_free(&comm);
    free(host);
}

/* Returns the number of offers of rank 1 that this rank keeps. */
static int offers_kept(void) {
    int (*tell)(int) = NULL;
    *(void **)&tell = dlsym(RTLD_DEFAULT, "penstockMpiOffersKept");
    return tell == NULL ? 0 : tell(1);
}

/* Offers that rank 0 never uses: for messages of MPI_Bsend_init, and in a communicator that
 * it has freed when it reads them. They must not fill its memory. */
void case_unused(struct scene *scene) {
    enum { BYTES = 4096, ROUNDS = 300, KEPT_MAX = 256 };
    char *device = device_new(BYTES), *other = device_new(BYTES), *host = calloc(1, BYTES);
    MPI_Request requests[2];
    MPI_Comm comm, passing;
    MPI_Comm_dup(scene->comm, &comm);
    if (scene->rank == 0) MPI_Bsend_init(device, BYTES, MPI_CHAR, 1, 330, comm, &requests[0]);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Comm_dup(comm, &passing);
        if (scene->rank == 1) {
            MPI_Irecv(device, BYTES, MPI_CHAR, 0, 330, comm, &requests[0]);
            MPI_Irecv(other, BYTES, MPI_CHAR, 0, 331, passing, &requests[1]);
        }
        MPI_Barrier(comm);
        if (scene->rank == 0) {
            MPI_Start(&requests[0]);
            MPI_Send(host, BYTES, MPI_CHAR, 1, 331, passing);
            MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        } else if (scene->rank == 1) {
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        }
        MPI_Comm_free(&passing);
        /* A send from a device reads the offers. */
        if (scene->rank == 0) MPI_Send(device, BYTES, MPI_CHAR, 1, 332, comm);
        if (scene->rank == 1) MPI_Recv(device, BYTES, MPI_CHAR, 0, 332, comm, MPI_STATUS_IGNORE);
    }
    if (scene->rank == 0) {
        CHECK(offers_kept() <= KEPT_MAX);
        MPI_Request_free(&requests[0]);
    }
    device_free(device);
    device_free(other);
    free(host);
    MPI_Comm_free(&comm);
}

/* Tells rank 0 the other rank's result of a round. Returns whether one of them has failed. */
static int has_failed(const struct scene *scene, int code) {
    int class = MPI_SUCCESS, worst = 0;
    MPI_Error_class(code, &class);
    CHECK(class == MPI_SUCCESS || class == MPI_ERR_OTHER);
    MPI_Allreduce(&class, &worst, 1, MPI_INT, MPI_MAX, scene->comm);
    return worst != MPI_SUCCESS;
}

/* Sends or broadcasts from rank 0 to rank 1 until somebody ends one of the processes. Both ranks
 * must hear of it, and memory of the host must still reach the other rank. */
void case_killed(struct scene *scene) {
    enum { BYTES = 16 << 20 };
    int code = MPI_SUCCESS, rounds = 0;
    double last = MPI_Wtime();
    char *device = device_new(BYTES);
    int broadcasts = strcmp(getenv("CALLS_KILLED"), "broadcast") == 0;
    printf("rank %d is process %d\n", scene->rank, (int)getpid());
    fflush(stdout);
    MPI_Comm_set_errhandler(scene->comm, MPI_ERRORS_RETURN);
    for (; !has_failed(scene, code); rounds++) {
        if (rounds == 3) {
            printf("rank %d has moved %d rounds\n", scene->rank, rounds);
            fflush(stdout);
        }
        last = MPI_Wtime();
        if (broadcasts)
            code = MPI_Bcast(device, BYTES, MPI_CHAR, 0, scene->comm);
        else if (scene->rank == 0)
            code = MPI_Send(device, BYTES, MPI_CHAR, 1, 300, scene->comm);
        else if (scene->rank == 1)
            code = MPI_Recv(device, BYTES, MPI_CHAR, 0, 300, scene->comm, MPI_STATUS_IGNORE);
    }
    fprintf(stderr, "rank %d ended in %.1f s after %d rounds, %s\n", scene->rank,
            MPI_Wtime() - last, rounds, code == MPI_SUCCESS ? "without an error" : "with an error");
    MPI_Comm_set_errhandler(scene->comm, MPI_ERRORS_ARE_FATAL);
}

/* Returns the number of messages of all ranks that workers have moved. */
unsigned long long lanes_moved(const struct scene *scene) {
    void (*tell)(unsigned long long *, unsigned long long *) = NULL;
    unsigned long long own[2] = {0, 0}, all[2] = {0, 0};
    *(void **)&tell = dlsym(RTLD_DEFAULT, "penstockMpiMoved");
    if (tell != NULL) tell(&own[0], &own[1]);
    MPI_Allreduce(own, all, 2, MPI_UNSIGNED_LONG_LONG, MPI_SUM, scene->comm);
    /* Each message that a worker has sent has come, and the other way round. */
    CHECK(all[0] == all[1] || getenv("CALLS_KILLED") != NULL);
    return all[0];
}
