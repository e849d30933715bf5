/* Agreement of all ranks on the path from worker to worker, and the names of communicators. */
#include "path.h"

#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Longest time between the ends of MPI_Init in two ranks. MPI_Init itself has waited for all ranks,
 * so only a rank without this library needs longer. */
enum { AGREEMENT_WAIT_S = 60 };

/* Raised with every change of what ranks tell each other. */
enum { PATH_VERSION = 1 };

/* The smallest message that the path may be told to take: a message must be longer than the stub
 * that stands for it, so that a receive too small for the stub is too small for the message. */
enum { BYTES_MIN_MIN = 2 * sizeof(struct pm_stub) };

/* The claim costs two round trips between workers, some 200 us on one host. MPI needs that time for
 * 1 MiB. */
size_t pm_path_bytes_min = (size_t)1 << 20;

static atomic_int is_on;
static int has_threads, world_size, keyval = MPI_KEYVAL_INVALID;
static MPI_Comm control = MPI_COMM_NULL;
/* Number of communicators that this rank has named. Threads may name several at the same time. */
static atomic_ullong named;
/* Raised with each communicator that is freed, whose handle MPI may use again. */
static atomic_uint freed;

/* Numbers of messages that workers have sent and received. */
static atomic_ullong moved[2];

void pm_path_moved(enum pm_lane_way way) { atomic_fetch_add(&moved[way], 1); }

/* Tells tests how many messages took the path. */
PM_EXPORT void penstockMpiMoved(unsigned long long *sent, unsigned long long *received) {
    *sent = atomic_load(&moved[PM_SENDS]);
    *received = atomic_load(&moved[PM_RECEIVES]);
}

/* Tells tests how many offers of a rank of MPI_COMM_WORLD this rank keeps. */
PM_EXPORT int penstockMpiOffersKept(int rank) { return pm_claims_kept(rank); }

int pm_has_threads(void) { return has_threads; }
MPI_Comm pm_control(void) { return control; }
int pm_world_size(void) { return world_size; }

static int forget(MPI_Comm comm, int key, void *value, void *extra) {
    struct pm_comm *it = value;
    (void)comm, (void)key, (void)extra;
    atomic_fetch_add(&freed, 1);
    pm_lanes_forget(it->id);
    free(it->world);
    free(it);
    return MPI_SUCCESS;
}

const struct pm_comm *pm_comm_of(MPI_Comm comm) {
    static _Thread_local struct {
        MPI_Comm comm;
        const struct pm_comm *it;
        unsigned freed;
    } last;
    void *found = NULL;
    int is_there = 0;
    if (!atomic_load_explicit(&is_on, memory_order_acquire)) return NULL;
    unsigned now = atomic_load(&freed);
    if (last.it != NULL && last.comm == comm && last.freed == now) return last.it;
    if (comm == MPI_COMM_NULL ||
        PMPI_Comm_get_attr(comm, keyval, &found, &is_there) != MPI_SUCCESS || !is_there)
        return NULL;
    last.comm = comm;
    last.it = found;
    last.freed = now;
    return found;
}

/* Gives a communicator a name that is the same in all its ranks. */
static void name(MPI_Comm comm) {
    MPI_Group own, world;
    uint64_t id = 0;
    int rank = 0, all[1] = {0}, first = 0;
    struct pm_comm *it = calloc(1, sizeof *it);
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_rank(MPI_COMM_WORLD, &first);
    /* The first rank of the communicator chooses the name. */
    if (rank == 0) id = (uint64_t)first << 32 | (atomic_fetch_add(&named, 1) + 1);
    int code = PMPI_Bcast(&id, 1, MPI_UINT64_T, 0, comm);
    if (it == NULL || code != MPI_SUCCESS || PMPI_Comm_size(comm, &all[0]) != MPI_SUCCESS) {
        free(it);
        return;
    }
    int *ranks = calloc((size_t)all[0], sizeof *ranks);
    it->world = calloc((size_t)all[0], sizeof *it->world);
    *it = (struct pm_comm){id, rank, all[0], it->world};
    for (int r = 0; ranks != NULL && r < it->size; r++) ranks[r] = r;
    PMPI_Comm_group(comm, &own);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    code = ranks != NULL && it->world != NULL
               ? PMPI_Group_translate_ranks(own, it->size, ranks, world, it->world)
               : MPI_ERR_NO_MEM;
    PMPI_Group_free(&own);
    PMPI_Group_free(&world);
    free(ranks);
    if (code == MPI_SUCCESS) code = PMPI_Comm_set_attr(comm, keyval, it);
    if (code == MPI_SUCCESS) return;
    free(it->world);
    free(it);
}

/* Stores in `*(int *)data` whether MPI's functions for Fortran are loaded. They do not call the
 * functions of this library. */
static int look_for_fortran(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    if (strstr(info->dlpi_name, "libmpi_mpifh") != NULL ||
        strstr(info->dlpi_name, "libmpi_usempi") != NULL ||
        strstr(info->dlpi_name, "libmpichfort") != NULL ||
        strstr(info->dlpi_name, "libmpifort") != NULL)
        *(int *)data = 1;
    return 0;
}

/* Agrees with all ranks of the job whether they use the path. */
static void agree(void) {
    const struct timespec pause = {0, 50000};
    const char *setting = getenv("PENSTOCK_MPI_WORKERS");
    struct timespec start, now;
    MPI_Request request;
    int has_fortran = 0, level = MPI_THREAD_SINGLE, has_ended = 0;
    PMPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (world_size < 2 || (setting != NULL && strcmp(setting, "off") == 0)) return;
    if (setting != NULL && strtoull(setting, NULL, 10) >= BYTES_MIN_MIN)
        pm_path_bytes_min = strtoull(setting, NULL, 10);
    dl_iterate_phdr(look_for_fortran, &has_fortran);
    int own = has_fortran ? 0 : PATH_VERSION, least[2] = {0, 0}, both[2] = {own, -own};
    /* The least and the negated largest version: they are equal if all ranks have the same. */
    if (PMPI_Iallreduce(both, least, 2, MPI_INT, MPI_MIN, MPI_COMM_WORLD, &request) != MPI_SUCCESS)
        return;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        if (PMPI_Test(&request, &has_ended, MPI_STATUS_IGNORE) != MPI_SUCCESS || has_ended) break;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec > AGREEMENT_WAIT_S) {
            fprintf(
                stderr,
                "penstock: MPI_Init: another rank of the job has not answered for %d s. Start "
                "all ranks with `penstock run --mpi`, or set PENSTOCK_MPI_WORKERS=off for those "
                "that have it\n",
                AGREEMENT_WAIT_S);
            PMPI_Abort(MPI_COMM_WORLD, 1);
        }
        nanosleep(&pause, NULL);
    }
    if (least[0] != PATH_VERSION || least[1] != -PATH_VERSION) return;
    PMPI_Query_thread(&level);
    has_threads = level == MPI_THREAD_MULTIPLE;
    if (PMPI_Comm_dup(MPI_COMM_WORLD, &control) != MPI_SUCCESS) return;
    PMPI_Comm_set_errhandler(control, MPI_ERRORS_RETURN);
    if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &keyval, NULL) != MPI_SUCCESS)
        return;
    name(MPI_COMM_WORLD);
    atomic_store(&is_on, 1);
}

PM_EXPORT int MPI_Init(int *argc, char ***argv) {
    int code = PMPI_Init(argc, argv);
    if (code == MPI_SUCCESS) agree();
    return code;
}

PM_EXPORT int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    int code = PMPI_Init_thread(argc, argv, required, provided);
    if (code == MPI_SUCCESS) agree();
    return code;
}

void pm_path_close(void) {
    MPI_Request request;
    int has_ended = 0;
    if (control == MPI_COMM_NULL) return;
    /* No rank starts to wait for an offer any more, and none leaves a note unread. */
    if (PMPI_Ibarrier(control, &request) == MPI_SUCCESS)
        while (!has_ended) {
            pm_order_lock();
            pm_notes_read();
            pm_order_unlock();
            if (PMPI_Test(&request, &has_ended, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
        }
    pm_order_lock();
    pm_notes_read();
    pm_notes_finish();
    pm_order_unlock();
    atomic_store(&is_on, 0);
}

/* Names a new communicator whose ranks all come from one that has a name. */
static int made(MPI_Comm parent, int code, const MPI_Comm *comm) {
    if (code == MPI_SUCCESS && *comm != MPI_COMM_NULL && pm_comm_of(parent) != NULL) name(*comm);
    return code;
}

PM_EXPORT int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *made_comm) {
    return made(comm, PMPI_Comm_dup(comm, made_comm), made_comm);
}

PM_EXPORT int MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *made_comm) {
    return made(comm, PMPI_Comm_dup_with_info(comm, info, made_comm), made_comm);
}

PM_EXPORT int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *made_comm) {
    return made(comm, PMPI_Comm_split(comm, color, key, made_comm), made_comm);
}

PM_EXPORT int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info,
                                  MPI_Comm *made_comm) {
    return made(comm, PMPI_Comm_split_type(comm, type, key, info, made_comm), made_comm);
}

PM_EXPORT int MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm *made_comm) {
    return made(comm, PMPI_Comm_create(comm, group, made_comm), made_comm);
}

PM_EXPORT int MPI_Cart_create(MPI_Comm comm, int dims, const int sizes[], const int periods[],
                              int reorder, MPI_Comm *made_comm) {
    return made(comm, PMPI_Cart_create(comm, dims, sizes, periods, reorder, made_comm), made_comm);
}

PM_EXPORT int MPI_Cart_sub(MPI_Comm comm, const int kept[], MPI_Comm *made_comm) {
    return made(comm, PMPI_Cart_sub(comm, kept, made_comm), made_comm);
}
