/* The shim between libwater and one MPI, see wtr_mpi.h. Each MPI's own compiler compiles it. It
 * only uses MPI-3, without extensions of any MPI. */
#include "wtr_mpi.h"

#include <mpi.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct wtr_mpi {
    MPI_Comm all;
    int rank, ranks, tag_max;
    int started; /* the shim has started MPI */
    int count, room;
    /* Operations under way. Both arrays have room for `room` members, of which `count` are used. */
    MPI_Request *requests;
    uint64_t *ids;
#ifdef WTR_SIMULATED
    char *is_send;
    /* Receives that `test_some` collects, and their indices in `requests`. */
    MPI_Request *receives;
    int *places;
#endif
    /* Filled by MPI_Testsome. */
    int *indices;
    MPI_Status *statuses;
    struct wtr_mpi_end *ends;
};

/* First size of the arrays: a busy rank has some pieces and letters under way. */
enum { ROOM_MIN = 64 };

static int failed(int code) { return code == MPI_SUCCESS ? 0 : code > 0 ? -code : -1; }

/* Enlarges an array. If that fails, the old array stays valid. */
static int grow(void **array, size_t members, size_t size) {
    void *larger = realloc(*array, members * size);
    if (larger == NULL) return -1;
    *array = larger;
    return 0;
}

/* Makes room for one more operation. */
static int make_room(struct wtr_mpi *run) {
    if (run->count < run->room) return 0;
    size_t room = run->room > 0 ? (size_t)run->room * 2 : ROOM_MIN;
    if (grow((void **)&run->requests, room, sizeof *run->requests) != 0 ||
        grow((void **)&run->ids, room, sizeof *run->ids) != 0 ||
        grow((void **)&run->indices, room, sizeof *run->indices) != 0 ||
        grow((void **)&run->statuses, room, sizeof *run->statuses) != 0 ||
        grow((void **)&run->ends, room, sizeof *run->ends) != 0)
        return -1;
#ifdef WTR_SIMULATED
    if (grow((void **)&run->is_send, room, sizeof *run->is_send) != 0 ||
        grow((void **)&run->receives, room, sizeof *run->receives) != 0 ||
        grow((void **)&run->places, room, sizeof *run->places) != 0)
        return -1;
#endif
    run->room = (int)room;
    return 0;
}

static void add(struct wtr_mpi *run, MPI_Request request, uint64_t id, int is_send) {
#ifdef WTR_SIMULATED
    run->is_send[run->count] = (char)is_send;
#else
    (void)is_send;
#endif
    run->requests[run->count] = request;
    run->ids[run->count] = id;
    run->count++;
}

static int shim_close(struct wtr_mpi *run, int finalize) {
    int code = MPI_SUCCESS;
    if (finalize) {
        MPI_Comm_free(&run->all);
        if (run->started) code = MPI_Finalize();
    }
    /* Without `finalize`, MPI may still use the memory of operations under way, so only the shim's
     * own arrays are freed. */
    free(run->requests);
    free(run->ids);
#ifdef WTR_SIMULATED
    free(run->is_send);
    free(run->receives);
    free(run->places);
#endif
    free(run->indices);
    free(run->statuses);
    free(run->ends);
    free(run);
    return failed(code);
}

static int shim_open(struct wtr_mpi **opened, int *threads) {
    struct wtr_mpi *run = calloc(1, sizeof *run);
    int level = MPI_THREAD_SINGLE, there = 0, code;
    if (run == NULL) return -1;
    MPI_Initialized(&there);
    if (there) {
        code = MPI_Query_thread(&level);
    } else {
        code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
        run->started = code == MPI_SUCCESS;
    }
    /* A communicator of its own keeps these messages apart from the program's. */
    if (code == MPI_SUCCESS) code = MPI_Comm_dup(MPI_COMM_WORLD, &run->all);
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(run->all, MPI_ERRORS_RETURN);
    /* MPI_COMM_WORLD reports errors that belong to no communicator. A program that has started MPI
     * itself keeps its own handler. */
    if (code == MPI_SUCCESS && run->started)
        code = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS) code = MPI_Comm_rank(run->all, &run->rank);
    if (code == MPI_SUCCESS) code = MPI_Comm_size(run->all, &run->ranks);
    if (code != MPI_SUCCESS || make_room(run) != 0) {
        shim_close(run, 0);
        return code == MPI_SUCCESS ? -1 : failed(code);
    }
    int *tag_max = NULL, found = 0;
    run->tag_max = 32767; /* the minimum that MPI guarantees */
    if (MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_max, &found) == MPI_SUCCESS && found &&
        tag_max != NULL)
        run->tag_max = *tag_max;
    *threads = level == MPI_THREAD_MULTIPLE     ? 3
               : level == MPI_THREAD_SERIALIZED ? 2
               : level == MPI_THREAD_FUNNELED   ? 1
                                                : 0;
    *opened = run;
    return 0;
}

static int shim_rank(const struct wtr_mpi *run) { return run->rank; }

static int shim_ranks(const struct wtr_mpi *run) { return run->ranks; }

static int shim_tag_max(const struct wtr_mpi *run) { return run->tag_max; }

/* Copies the first line of a text of MPI, as far as there is room. */
static int first_line(const char *from, char *text, int room) {
    if (room <= 0) return -1;
    size_t length = strcspn(from, "\n");
    if (length >= (size_t)room) length = (size_t)room - 1;
    memcpy(text, from, length);
    text[length] = 0;
    return (int)length;
}

static int shim_library(char *text, int room) {
    char all[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    int code = MPI_Get_library_version(all, &length);
    return code == MPI_SUCCESS ? first_line(all, text, room) : failed(code);
}

static int shim_error_text(int code, char *text, int room) {
    char all[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (MPI_Error_string(code, all, &length) != MPI_SUCCESS) return -1;
    /* Some MPIs explain the cause in further lines. */
    for (char *end = all; (end = strchr(end, '\n')) != NULL;) *end = ' ';
    return first_line(all, text, room);
}

static int shim_send(struct wtr_mpi *run, const void *bytes, int count, int to, int tag,
                     uint64_t id) {
    MPI_Request request;
    if (make_room(run) != 0) return -1;
    /* Some MPIs of version 2 demand a pointer without const. */
    int code = MPI_Isend((void *)bytes, count, MPI_BYTE, to, tag, run->all, &request);
    if (code == MPI_SUCCESS) add(run, request, id, 1);
    return failed(code);
}

static int shim_receive(struct wtr_mpi *run, void *bytes, int room, int from, int tag,
                        uint64_t id) {
    MPI_Request request;
    if (make_room(run) != 0) return -1;
    int code = MPI_Irecv(bytes, room, MPI_BYTE, from, tag, run->all, &request);
    if (code == MPI_SUCCESS) add(run, request, id, 0);
    return failed(code);
}

static int shim_probe(struct wtr_mpi *run, int tag, int *from, int *count) {
    MPI_Status status;
    int found = 0;
    int code = MPI_Iprobe(MPI_ANY_SOURCE, tag, run->all, &found, &status);
    if (code != MPI_SUCCESS || !found) return failed(code);
    *from = status.MPI_SOURCE;
    code = MPI_Get_count(&status, MPI_BYTE, count);
    return code == MPI_SUCCESS ? 1 : failed(code);
}

/* Does the same as MPI_Testsome. The simulator's own MPI_Testsome tests each request with an event,
 * which takes most of its time if a rank has many. Its MPI_Testany tests all requests with one
 * event, but misses short sends that have ended. */
static int test_some(struct wtr_mpi *run, int *ended) {
#ifdef WTR_SIMULATED
    int receives = 0, code = MPI_SUCCESS;
    *ended = 0;
    for (int i = 0; i < run->count && code == MPI_SUCCESS; i++) {
        int is_there = 0;
        if (!run->is_send[i]) {
            run->places[receives] = i;
            run->receives[receives++] = run->requests[i];
            continue;
        }
        code = MPI_Test(&run->requests[i], &is_there, &run->statuses[*ended]);
        if (is_there) run->indices[(*ended)++] = i;
    }
    while (receives > 0 && code == MPI_SUCCESS) {
        int index = MPI_UNDEFINED, is_there = 0;
        code = MPI_Testany(receives, run->receives, &index, &is_there, &run->statuses[*ended]);
        if (code != MPI_SUCCESS || !is_there || index == MPI_UNDEFINED) break;
        run->indices[(*ended)++] = run->places[index];
        receives--;
        run->receives[index] = run->receives[receives];
        run->places[index] = run->places[receives];
    }
    return code;
#else
    return MPI_Testsome(run->count, run->requests, ended, run->indices, run->statuses);
#endif
}

static int shim_test(struct wtr_mpi *run, const struct wtr_mpi_end **ends) {
    int ended = 0, kept = 0;
    *ends = run->ends;
    if (run->count == 0) return 0;
    int code = test_some(run, &ended);
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) return failed(code);
    if (ended == MPI_UNDEFINED || ended <= 0) return 0;
    for (int i = 0; i < ended; i++) {
        struct wtr_mpi_end *end = &run->ends[i];
        MPI_Status *status = &run->statuses[i];
        int count = 0, cancelled = 0;
        MPI_Test_cancelled(status, &cancelled);
        if (!cancelled && MPI_Get_count(status, MPI_BYTE, &count) != MPI_SUCCESS) count = 0;
        end->id = run->ids[run->indices[i]];
        /* The count is undefined for sends and barriers. */
        end->bytes = count > 0 ? count : 0;
        /* MPI_ERROR is only defined in this case. */
        end->error = code == MPI_ERR_IN_STATUS ? status->MPI_ERROR : 0;
        end->cancelled = cancelled != 0;
        run->requests[run->indices[i]] = MPI_REQUEST_NULL;
    }
    for (int i = 0; i < run->count; i++) {
        if (run->requests[i] != MPI_REQUEST_NULL) {
            run->requests[kept] = run->requests[i];
            run->ids[kept] = run->ids[i];
#ifdef WTR_SIMULATED
            run->is_send[kept] = run->is_send[i];
#endif
            kept++;
        }
    }
    run->count = kept;
    return ended;
}

static int shim_pending(const struct wtr_mpi *run) { return run->count; }

static int shim_cancel(struct wtr_mpi *run, uint64_t id) {
    for (int i = 0; i < run->count; i++)
        if (run->ids[i] == id) return failed(MPI_Cancel(&run->requests[i]));
    return 0;
}

static int shim_barrier(struct wtr_mpi *run, uint64_t id) {
    MPI_Request request;
    if (make_room(run) != 0) return -1;
    int code = MPI_Ibarrier(run->all, &request);
    if (code == MPI_SUCCESS) add(run, request, id, 1);
    return failed(code);
}

static uint64_t shim_now_ns(void) { return (uint64_t)(MPI_Wtime() * 1e9); }

static void shim_sleep_ns(uint64_t ns) {
    struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&time, NULL);
}

const struct wtr_mpi_shim *wtr_mpi_shim(void) {
    static const struct wtr_mpi_shim shim = {
        .abi = WTR_MPI_ABI,
        .size = sizeof shim,
        .open = shim_open,
        .rank = shim_rank,
        .ranks = shim_ranks,
        .tag_max = shim_tag_max,
        .library = shim_library,
        .error_text = shim_error_text,
        .send = shim_send,
        .receive = shim_receive,
        .probe = shim_probe,
        .test = shim_test,
        .pending = shim_pending,
        .cancel = shim_cancel,
        .barrier = shim_barrier,
        .close = shim_close,
        .now_ns = shim_now_ns,
        .sleep_ns = shim_sleep_ns,
    };
    return &shim;
}

static int blocking_wait(struct wtr_mpi *run, uint64_t id) {
    for (int i = 0; i < run->count; i++) {
        if (run->ids[i] != id) continue;
        int code = MPI_Wait(&run->requests[i], MPI_STATUS_IGNORE);
        run->count--;
        run->requests[i] = run->requests[run->count];
        run->ids[i] = run->ids[run->count];
        return failed(code);
    }
    return 0;
}

static int blocking_send(struct wtr_mpi *run, const void *bytes, int count, int to, int tag) {
    return failed(MPI_Send((void *)bytes, count, MPI_BYTE, to, tag, run->all));
}

static int blocking_receive(struct wtr_mpi *run, void *bytes, int room, int from, int tag) {
    return failed(MPI_Recv(bytes, room, MPI_BYTE, from, tag, run->all, MPI_STATUS_IGNORE));
}

static int blocking_barrier(struct wtr_mpi *run) { return failed(MPI_Barrier(run->all)); }

const struct wtr_mpi_blocking *wtr_mpi_blocking(void) {
    static const struct wtr_mpi_blocking calls = {
        .abi = WTR_MPI_BLOCKING_ABI,
        .size = sizeof calls,
        .open = shim_open,
        .rank = shim_rank,
        .ranks = shim_ranks,
        .library = shim_library,
        .error_text = shim_error_text,
        .start_send = shim_send,
        .start_receive = shim_receive,
        .close = shim_close,
        .wait = blocking_wait,
        .send = blocking_send,
        .receive = blocking_receive,
        .barrier = blocking_barrier,
    };
    return &calls;
}
