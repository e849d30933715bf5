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
enum { PATH_VERSION = 2 };

/* The smallest message that the path may be told to take: a message must be longer than the stub
 * that stands for it, so that a receive too small for the stub is too small for the message. */
enum { BYTES_MIN_MIN = 2 * sizeof(struct pm_stub) };

/* The claim costs two round trips between workers, some 200 us on one host. MPI needs that time for
 * 1 MiB. */
size_t pm_path_bytes_min = (size_t)1 << 20;

/* If both processes see the memory, MPI takes 84 us for 1 MiB and 340 us for 4 MiB. The path takes
 * 90 and 290 us. */
size_t pm_seen_bytes_min = (size_t)4 << 20;

size_t pm_group_bytes_min;

/* Tag of the first communicator's collective calls. Notes have tag 1. */
enum { GROUP_TAG_FIRST = 2 };

/* Tag for the next communicator. It is larger than those of all earlier communicators with this
 * rank. */
static uint64_t next_tag = GROUP_TAG_FIRST;

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
    pm_lanes_forget(it->id, it->tag);
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

static void release(struct pm_comm *it) {
    if (it == NULL) return;
    free(it->world);
    free(it);
}

/* Returns what is known of a communicator without its name, or NULL. */
static struct pm_comm *describe(MPI_Comm comm) {
    MPI_Group own, world;
    struct pm_comm *it = calloc(1, sizeof *it);
    if (it == NULL) return NULL;
    PMPI_Comm_rank(comm, &it->rank);
    PMPI_Comm_size(comm, &it->size);
    int *ranks = calloc((size_t)it->size, sizeof *ranks);
    it->world = calloc((size_t)it->size, sizeof *it->world);
    for (int r = 0; ranks != NULL && r < it->size; r++) ranks[r] = r;
    PMPI_Comm_group(comm, &own);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    int code = ranks != NULL && it->world != NULL
                   ? PMPI_Group_translate_ranks(own, it->size, ranks, world, it->world)
                   : MPI_ERR_NO_MEM;
    PMPI_Group_free(&own);
    PMPI_Group_free(&world);
    free(ranks);
    if (code == MPI_SUCCESS) code = PMPI_Comm_set_attr(comm, keyval, it);
    if (code == MPI_SUCCESS) return it;
    release(it);
    return NULL;
}

/* Returns whether a tag is one. */
static int is_tag(uint64_t tag) {
    void *most = NULL;
    int is_there = 0;
    return PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &is_there) == MPI_SUCCESS &&
           is_there && tag <= (uint64_t)*(int *)most;
}

/* Gives a communicator a name that is the same in all its ranks, or in none of them. */
static void name(MPI_Comm comm, int has_failed) {
    /* The first rank chooses the name. The tag is new for all ranks. */
    struct {
        uint64_t id, tag, has_failed, has_threads;
    } own = {0, next_tag, 0, (uint64_t)has_threads}, all = {0};
    int first = 0;
    struct pm_comm *it = describe(comm);
    PMPI_Comm_rank(MPI_COMM_WORLD, &first);
    if (it != NULL && it->rank == 0)
        own.id = (uint64_t)first << 32 | (atomic_fetch_add(&named, 1) + 1);
    own.has_failed = it == NULL || has_failed;
    int code = PMPI_Allreduce(&own, &all, 4, MPI_UINT64_T, MPI_MAX, comm);
    if (code == MPI_SUCCESS) next_tag = all.tag + 1;
    if (it == NULL) return;
    if (code != MPI_SUCCESS || all.has_failed) {
        PMPI_Comm_delete_attr(comm, keyval);
        return;
    }
    it->id = all.id;
    /* Several threads could name two communicators at the same time, with one tag. */
    if (!all.has_threads && is_tag(all.tag)) it->tag = (int)all.tag;
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
        pm_path_bytes_min = pm_seen_bytes_min = strtoull(setting, NULL, 10);
    dl_iterate_phdr(look_for_fortran, &has_fortran);
    int64_t version = has_fortran ? 0 : PATH_VERSION, least[3] = {0};
    /* The least and the negated largest version: they are equal if all ranks have the same. The
     * negated largest size. */
    int64_t own[3] = {version, -version, -(int64_t)pm_path_bytes_min};
    if (PMPI_Iallreduce(own, least, 3, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD, &request) !=
        MPI_SUCCESS)
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
    pm_group_bytes_min = (size_t)-least[2];
    /* The lanes of collective calls are those of a communicator with the name 0. */
    name(MPI_COMM_WORLD, describe(control) == NULL);
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
    if (code == MPI_SUCCESS && *comm != MPI_COMM_NULL && pm_comm_of(parent) != NULL) name(*comm, 0);
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
