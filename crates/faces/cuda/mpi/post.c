/* Counts messages and passes them to MPI. */
#include "path.h"

#include <sched.h>

/* Stores the lane of a message, and returns its communicator, or NULL if the message is not
 * counted. */
static const struct pm_comm *lane_of(const struct pm_message *message, enum pm_lane_way way,
                                     struct pm_lane *lane) {
    const struct pm_comm *comm =
        message->partner == MPI_PROC_NULL ? NULL : pm_comm_of(message->comm);
    if (comm != NULL) *lane = (struct pm_lane){comm->id, message->partner, message->tag, way};
    return comm;
}

int pm_post_isend(const struct pm_message *message, const void *host, pm_start_send *start,
                  MPI_Request *request) {
    struct pm_lane lane;
    const struct pm_comm *comm = lane_of(message, PM_SENDS, &lane);
    if (comm != NULL) pm_order_lock();
    int code = start(host, message->count, message->type, message->partner, message->tag,
                     message->comm, request);
    if (comm == NULL) return code;
    pm_lane_passed(&lane, code);
    pm_order_unlock();
    return code;
}

int pm_post_send(const struct pm_message *message, const void *host, pm_send *send,
                 pm_start_send *start) {
    struct pm_lane lane;
    MPI_Request request;
    if (pm_has_threads() && lane_of(message, PM_SENDS, &lane) != NULL) {
        /* A call that blocks cannot hold the lock. */
        int code = pm_post_isend(message, host, start, &request);
        return code == MPI_SUCCESS ? PMPI_Wait(&request, MPI_STATUS_IGNORE) : code;
    }
    int code =
        send(host, message->count, message->type, message->partner, message->tag, message->comm);
    pm_post_count(message, PM_SENDS, code);
    return code;
}

/* Returns whether a receive names its source and its tag. */
static int is_exact(const struct pm_comm *comm, const struct pm_lane *lane) {
    return lane->partner >= 0 && lane->partner < comm->size && lane->tag >= 0;
}

/* Ends the posting of a receive. From `pm_lane_enter` on, a receive with wildcards can take a
 * message of each lane that it matches. */
static void posted(const struct pm_comm *comm, const struct pm_lane *lane, struct pm_stage *stage,
                   int code, MPI_Request request) {
    if (!is_exact(comm, lane)) {
        if (code == MPI_SUCCESS) return;
        pm_lane_leave(lane);
        pm_lane_stop(lane);
        return;
    }
    if (code == MPI_SUCCESS && stage->block != NULL && stage->whole >= pm_path_bytes_min)
        pm_offer_make(stage, comm, lane, request);
    pm_lane_passed(lane, code);
}

int pm_post_irecv(const struct pm_message *message, struct pm_stage *stage, MPI_Request *request) {
    struct pm_lane lane;
    const struct pm_comm *comm = lane_of(message, PM_RECEIVES, &lane);
    if (comm != NULL) pm_order_lock();
    if (comm != NULL && !is_exact(comm, &lane)) pm_lane_enter(&lane);
    int code = PMPI_Irecv(stage->host, message->count, message->type, message->partner,
                          message->tag, message->comm, request);
    if (comm == NULL) return code;
    posted(comm, &lane, stage, code, *request);
    pm_order_unlock();
    return code;
}

int pm_post_start(const struct pm_message *message, struct pm_stage *stage, enum pm_lane_way way,
                  MPI_Request *request) {
    struct pm_lane lane;
    const struct pm_comm *comm = lane_of(message, way, &lane);
    if (comm == NULL) return PMPI_Start(request);
    pm_order_lock();
    if (way == PM_RECEIVES && !is_exact(comm, &lane)) pm_lane_enter(&lane);
    int code = PMPI_Start(request);
    if (way == PM_RECEIVES)
        posted(comm, &lane, stage, code, *request);
    else
        pm_lane_passed(&lane, code);
    pm_order_unlock();
    return code;
}

int pm_post_may_offer(const struct pm_message *message) {
    struct pm_lane lane;
    const struct pm_comm *comm = lane_of(message, PM_RECEIVES, &lane);
    if (comm == NULL || !is_exact(comm, &lane) || lane.partner == comm->rank) return 0;
    pm_order_lock();
    int is_closed = pm_lane_is_closed(&lane);
    pm_order_unlock();
    return !is_closed;
}

void pm_post_offer(const struct pm_message *message, struct pm_stage *stage) {
    struct pm_lane lane;
    if (stage->block == NULL || stage->whole < pm_path_bytes_min || pm_has_threads()) return;
    const struct pm_comm *comm = lane_of(message, PM_RECEIVES, &lane);
    if (comm == NULL || !is_exact(comm, &lane)) return;
    pm_order_lock();
    pm_offer_make(stage, comm, &lane, MPI_REQUEST_NULL);
    pm_order_unlock();
}

void pm_await(MPI_Request request) {
    int has_ended = 0;
    MPI_Status status;
    while (PMPI_Request_get_status(request, &has_ended, &status) == MPI_SUCCESS && !has_ended)
        sched_yield();
}

/* Waits until a message is there for a receive that has offered its memory, as `pm_await`. */
static void await_message(const struct pm_message *message) {
    int is_there = 0;
    while (PMPI_Iprobe(message->partner, message->tag, message->comm, &is_there,
                       MPI_STATUS_IGNORE) == MPI_SUCCESS &&
           !is_there)
        sched_yield();
}

int pm_post_recv(const struct pm_message *message, struct pm_stage *stage, MPI_Status *status) {
    struct pm_lane lane;
    MPI_Request request;
    const struct pm_comm *comm = lane_of(message, PM_RECEIVES, &lane);
    int is_counted = comm != NULL && is_exact(comm, &lane);
    if (is_counted && pm_has_threads() && stage->block != NULL &&
        stage->whole >= pm_path_bytes_min) {
        int code = pm_post_irecv(message, stage, &request);
        if (code == MPI_SUCCESS && stage->offer != NULL) pm_await(request);
        return code == MPI_SUCCESS ? PMPI_Wait(&request, status) : code;
    }
    if (stage->offer == NULL && is_counted) pm_post_offer(message, stage);
    if (stage->offer != NULL) await_message(message);
    pm_post_begin(message, PM_RECEIVES);
    int code = PMPI_Recv(stage->host, message->count, message->type, message->partner, message->tag,
                         message->comm, status);
    pm_post_end(message, PM_RECEIVES, code, status);
    return code;
}

void pm_post_begin(const struct pm_message *message, enum pm_lane_way way) {
    struct pm_lane lane;
    /* If only one thread calls MPI, nothing happens until the end of the call. */
    if (!pm_has_threads() || lane_of(message, way, &lane) == NULL) return;
    pm_order_lock();
    pm_lane_enter(&lane);
    pm_order_unlock();
}

void pm_post_end(const struct pm_message *message, enum pm_lane_way way, int code,
                 const MPI_Status *status) {
    struct pm_lane lane;
    const struct pm_comm *comm = lane_of(message, way, &lane);
    if (comm == NULL) return;
    pm_order_lock();
    if (pm_has_threads()) pm_lane_leave(&lane);
    if (way == PM_RECEIVES && code == MPI_SUCCESS) {
        lane.partner = status->MPI_SOURCE;
        lane.tag = status->MPI_TAG;
    }
    pm_lane_passed(&lane, code);
    pm_order_unlock();
}

void pm_post_matched(const struct pm_lane *lane, const MPI_Status *status) {
    int is_cancelled = 0;
    if (status != NULL) PMPI_Test_cancelled(status, &is_cancelled);
    pm_order_lock();
    pm_lane_leave(lane);
    if (status == NULL) {
        pm_lane_stop(lane);
    } else if (!is_cancelled) {
        struct pm_lane met = {lane->comm, status->MPI_SOURCE, status->MPI_TAG, PM_RECEIVES};
        pm_lane_count(&met, 1);
    }
    pm_order_unlock();
}

int pm_post_is_wild(const struct pm_message *message, struct pm_lane *lane) {
    const struct pm_comm *comm = lane_of(message, PM_RECEIVES, lane);
    return comm != NULL && !is_exact(comm, lane);
}

void pm_post_count(const struct pm_message *message, enum pm_lane_way way, int code) {
    struct pm_lane lane;
    if (lane_of(message, way, &lane) == NULL) return;
    pm_order_lock();
    pm_lane_passed(&lane, code);
    pm_order_unlock();
}

void pm_post_uncounted(MPI_Comm comm, int partner, int tag, enum pm_lane_way way) {
    const struct pm_comm *known = partner == MPI_PROC_NULL ? NULL : pm_comm_of(comm);
    if (known == NULL) return;
    struct pm_lane lane = {known->id, partner, tag, way};
    pm_order_lock();
    pm_lane_stop(&lane);
    pm_order_unlock();
}

/* A matched probe takes a message from its lane, as a receive does. */

PM_EXPORT int MPI_Mprobe(int from, int tag, MPI_Comm comm, MPI_Message *message,
                         MPI_Status *status) {
    struct pm_message it = {.partner = from, .tag = tag, .comm = comm};
    MPI_Status own;
    if (status == MPI_STATUS_IGNORE) status = &own;
    pm_post_begin(&it, PM_RECEIVES);
    int code = PMPI_Mprobe(from, tag, comm, message, status);
    pm_post_end(&it, PM_RECEIVES, code, status);
    return code;
}

PM_EXPORT int MPI_Improbe(int from, int tag, MPI_Comm comm, int *flag, MPI_Message *message,
                          MPI_Status *status) {
    struct pm_lane lane;
    struct pm_message it = {.partner = from, .tag = tag, .comm = comm};
    const struct pm_comm *known = lane_of(&it, PM_RECEIVES, &lane);
    MPI_Status own;
    if (status == MPI_STATUS_IGNORE) status = &own;
    if (known != NULL) pm_order_lock();
    int code = PMPI_Improbe(from, tag, comm, flag, message, status);
    if (known == NULL) return code;
    if (code == MPI_SUCCESS && *flag) {
        lane.partner = status->MPI_SOURCE;
        lane.tag = status->MPI_TAG;
    }
    if (code != MPI_SUCCESS || *flag) pm_lane_passed(&lane, code);
    pm_order_unlock();
    return code;
}

/* A receive that is cancelled takes no message, and a send that is cancelled sends none. The later
 * receives of the lane then meet other messages than they were counted for. */
PM_EXPORT int MPI_Cancel(MPI_Request *request) {
    int is_safe = pm_comm_of(MPI_COMM_WORLD) == NULL, is_moving = 0, is_receive = 0;
    struct pm_operation *operation = is_safe || request == NULL ? NULL : pm_claim(*request);
    if (operation != NULL) {
        is_receive = operation->is_receive;
        /* No receive was offered behind it in the lanes that it matches. */
        is_safe = operation->is_wild;
        is_moving = operation->stage.claim != NULL;
        pm_unclaim(operation);
    }
    /* Workers move the bytes already. A send that cannot be cancelled ends as usual. */
    if (is_moving) return MPI_SUCCESS;
    if (!is_safe && !is_receive) pm_claims_stop();
    if (!is_safe) pm_offers_stop();
    return PMPI_Cancel(request);
}

#if MPI_VERSION >= 4

/* A call that the library only passes on. */
#define LIST(...) __VA_ARGS__
#define UNCOUNTED(NAME, PARAMETERS, ARGUMENTS, PARTNER, TAG, WAY) \
    PM_EXPORT int MPI_##NAME(LIST PARAMETERS) {                   \
        pm_post_uncounted(comm, PARTNER, TAG, WAY);               \
        return PMPI_##NAME(LIST ARGUMENTS);                       \
    }

#define SENT (const void *b, MPI_Count n, MPI_Datatype t, int to, int tag, MPI_Comm comm)
#define SENT_NAMES (b, n, t, to, tag, comm)
#define SEND_C(NAME, LATER, INIT)                                                           \
    UNCOUNTED(NAME, SENT, SENT_NAMES, to, tag, PM_SENDS)                                    \
    UNCOUNTED(LATER, (LIST SENT, MPI_Request * r), (LIST SENT_NAMES, r), to, tag, PM_SENDS) \
    UNCOUNTED(INIT, (LIST SENT, MPI_Request * r), (LIST SENT_NAMES, r), to, tag, PM_SENDS)

SEND_C(Send_c, Isend_c, Send_init_c)
SEND_C(Bsend_c, Ibsend_c, Bsend_init_c)
SEND_C(Rsend_c, Irsend_c, Rsend_init_c)
SEND_C(Ssend_c, Issend_c, Ssend_init_c)

#define RECEIVED (void *b, MPI_Count n, MPI_Datatype t, int from, int tag, MPI_Comm comm)
#define RECEIVED_NAMES (b, n, t, from, tag, comm)
#define RECEIVE_C(NAME, LAST) \
    UNCOUNTED(NAME, (LIST RECEIVED, LAST x), (LIST RECEIVED_NAMES, x), from, tag, PM_RECEIVES)

RECEIVE_C(Recv_c, MPI_Status *)
RECEIVE_C(Irecv_c, MPI_Request *)
RECEIVE_C(Recv_init_c, MPI_Request *)

/* Calls that send and receive. */
#define EXCHANGE(NAME, COUNT, LAST)                                                               \
    PM_EXPORT int MPI_##NAME(const void *b, COUNT n, MPI_Datatype t, int to, int to_tag, void *c, \
                             COUNT m, MPI_Datatype u, int from, int from_tag, MPI_Comm comm,      \
                             LAST x) {                                                            \
        pm_post_uncounted(comm, to, to_tag, PM_SENDS);                                            \
        pm_post_uncounted(comm, from, from_tag, PM_RECEIVES);                                     \
        return PMPI_##NAME(b, n, t, to, to_tag, c, m, u, from, from_tag, comm, x);                \
    }
#define REPLACE(NAME, COUNT, LAST)                                                           \
    PM_EXPORT int MPI_##NAME(void *b, COUNT n, MPI_Datatype t, int to, int to_tag, int from, \
                             int from_tag, MPI_Comm comm, LAST x) {                          \
        pm_post_uncounted(comm, to, to_tag, PM_SENDS);                                       \
        pm_post_uncounted(comm, from, from_tag, PM_RECEIVES);                                \
        return PMPI_##NAME(b, n, t, to, to_tag, from, from_tag, comm, x);                    \
    }

EXCHANGE(Isendrecv, int, MPI_Request *)
EXCHANGE(Sendrecv_c, MPI_Count, MPI_Status *)
EXCHANGE(Isendrecv_c, MPI_Count, MPI_Request *)
REPLACE(Isendrecv_replace, int, MPI_Request *)
REPLACE(Sendrecv_replace_c, MPI_Count, MPI_Status *)
REPLACE(Isendrecv_replace_c, MPI_Count, MPI_Request *)

#endif
