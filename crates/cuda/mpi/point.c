/* Messages from one rank to another. */
#include "path.h"

#include <stdlib.h>

/* Opens a buffer and fetches its bytes. */
static int open_source(struct pm_stage *stage, const char *function, MPI_Comm comm,
                       const void *buffer, size_t count, MPI_Datatype type) {
    int code = pm_open(stage, function, comm, buffer, count, type);
    if (code != MPI_SUCCESS) return code;
    code = pm_fetch(stage);
    if (code != MPI_SUCCESS) pm_close(stage);
    return code;
}

/* The number of elements that a call with this partner moves. The pointer of a call with
 * MPI_PROC_NULL means nothing. */
static size_t moved(int count, int partner) {
    return count > 0 && partner != MPI_PROC_NULL ? (size_t)count : 0;
}

/* Sends a message and waits as `send` does. The messages of MPI_Bsend do not take the path: the
 * call returns before they are received. */
static int send_now(const struct pm_message *it, pm_send *send, pm_start_send *start,
                    int may_claim) {
    struct pm_stage stage;
    MPI_Request request = MPI_REQUEST_NULL;
    int code = pm_open(&stage, it->function, it->comm, it->buffer, moved(it->count, it->partner),
                       it->type);
    if (code != MPI_SUCCESS) {
        pm_claim_fail(it, code);
        return code;
    }
    if (may_claim && pm_claim_offer(&stage, it, start, &request, &code)) {
        if (code == MPI_SUCCESS) code = PMPI_Wait(&request, MPI_STATUS_IGNORE);
        int sent = pm_claim_end(&stage);
        if (code == MPI_SUCCESS) code = sent;
    } else {
        code = pm_fetch(&stage);
        if (code == MPI_SUCCESS)
            code = pm_post_send(it, stage.host, send, start);
        else
            pm_claim_fail(it, code);
    }
    pm_close(&stage);
    return code;
}

#define SEND(NAME, START, MAY_CLAIM)                                                            \
    PM_EXPORT int MPI_##NAME(const void *buffer, int count, MPI_Datatype type, int to, int tag, \
                             MPI_Comm comm) {                                                   \
        struct pm_message it = {buffer, count, type, to, tag, comm, "MPI_" #NAME};              \
        return send_now(&it, PMPI_##NAME, PMPI_##START, MAY_CLAIM);                             \
    }

/* MPI_Bsend copies the bytes before it returns, so the block is free then. */
SEND(Send, Isend, 1)
SEND(Bsend, Ibsend, 0)
SEND(Rsend, Irsend, 1)
SEND(Ssend, Issend, 1)

/* Ends a receive for which MPI returned `code`. */
static int received(struct pm_stage *stage, int code, MPI_Status *status) {
    if (code == MPI_SUCCESS) code = pm_store_received(stage, status);
    pm_close(stage);
    return code;
}

PM_EXPORT int MPI_Recv(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                       MPI_Status *status) {
    struct pm_message it = {buffer, count, type, from, tag, comm, "MPI_Recv"};
    struct pm_stage stage;
    MPI_Status own;
    int code = pm_open_target(&stage, &it, moved(count, from));
    if (code != MPI_SUCCESS) return code;
    if (stage.block != NULL && status == MPI_STATUS_IGNORE) status = &own;
    code = pm_post_recv(&it, &stage, status);
    return received(&stage, code, status);
}

PM_EXPORT int MPI_Mrecv(void *buffer, int count, MPI_Datatype type, MPI_Message *message,
                        MPI_Status *status) {
    struct pm_stage stage;
    MPI_Status own;
    /* A message does not tell its communicator. */
    int code = pm_open(&stage, "MPI_Mrecv", MPI_COMM_WORLD, buffer, moved(count, 0), type);
    if (code != MPI_SUCCESS) return code;
    if (stage.block != NULL && status == MPI_STATUS_IGNORE) status = &own;
    code = PMPI_Mrecv(stage.host, count, type, message, status);
    return received(&stage, code, status);
}

/* MPI_Sendrecv if several threads call MPI and a buffer may take the path. The receive has its
 * place in the order before the send waits for anything. */
static int sendrecv_apart(const struct pm_message *out, const struct pm_message *in,
                          struct pm_stage *target, MPI_Status *status) {
    MPI_Request request;
    int code = pm_post_irecv(in, target, &request);
    if (code != MPI_SUCCESS) return received(target, code, status);
    int sent = send_now(out, PMPI_Send, PMPI_Isend, 1);
    /* Otherwise the call could wait for a message that nobody sends. */
    if (sent != MPI_SUCCESS) MPI_Cancel(&request);
    code = received(target, PMPI_Wait(&request, status), status);
    return sent != MPI_SUCCESS ? sent : code;
}

/* MPI_Sendrecv with buffers that are open. */
static int sendrecv(const struct pm_message *out, struct pm_stage *source,
                    const struct pm_message *in, struct pm_stage *target, MPI_Status *status) {
    MPI_Request request;
    int code = MPI_SUCCESS;
    if (pm_has_threads()) {
        pm_post_uncounted(out->comm, out->partner, out->tag, PM_SENDS);
        pm_post_uncounted(in->comm, in->partner, in->tag, PM_RECEIVES);
    } else {
        /* Both ranks of an exchange offer before they wait for offers. */
        pm_post_offer(in, target);
        if (pm_claim_offer(source, out, PMPI_Isend, &request, &code)) {
            if (code != MPI_SUCCESS) return code;
            code = pm_post_recv(in, target, status);
            int sent = PMPI_Wait(&request, MPI_STATUS_IGNORE), ended = pm_claim_end(source);
            if (code == MPI_SUCCESS) code = sent;
            return code == MPI_SUCCESS ? ended : code;
        }
    }
    code = pm_fetch(source);
    if (code != MPI_SUCCESS) {
        pm_claim_fail(out, code);
        return code;
    }
    code = PMPI_Sendrecv(source->host, out->count, out->type, out->partner, out->tag, target->host,
                         in->count, in->type, in->partner, in->tag, in->comm, status);
    pm_post_count(out, PM_SENDS, code);
    pm_post_count(in, PM_RECEIVES, code);
    return code;
}

static int may_take_path(const struct pm_stage *stage) { return stage->whole >= pm_path_bytes_min; }

PM_EXPORT int MPI_Sendrecv(const void *from_buffer, int from_count, MPI_Datatype from_type, int to,
                           int to_tag, void *to_buffer, int to_count, MPI_Datatype to_type,
                           int from, int from_tag, MPI_Comm comm, MPI_Status *status) {
    const char *function = "MPI_Sendrecv";
    struct pm_message out = {from_buffer, from_count, from_type, to, to_tag, comm, function};
    struct pm_message in = {to_buffer, to_count, to_type, from, from_tag, comm, function};
    struct pm_stage source, target;
    MPI_Status own;
    int code = pm_open_target(&target, &in, moved(to_count, from));
    if (code != MPI_SUCCESS) return code;
    if (target.block != NULL && status == MPI_STATUS_IGNORE) status = &own;
    code = pm_open(&source, function, comm, from_buffer, moved(from_count, to), from_type);
    if (code != MPI_SUCCESS) {
        pm_claim_fail(&out, code);
        pm_close(&target);
        return code;
    }
    if (pm_has_threads() && (may_take_path(&source) || may_take_path(&target))) {
        pm_close(&source);
        return sendrecv_apart(&out, &in, &target, status);
    }
    code = sendrecv(&out, &source, &in, &target, status);
    pm_close(&source);
    return received(&target, code, status);
}

PM_EXPORT int MPI_Sendrecv_replace(void *buffer, int count, MPI_Datatype type, int to, int to_tag,
                                   int from, int from_tag, MPI_Comm comm, MPI_Status *status) {
    struct pm_stage stage;
    MPI_Status own;
    size_t used = moved(count, to) > 0 ? moved(count, to) : moved(count, from);
    int code = open_source(&stage, "MPI_Sendrecv_replace", comm, buffer, used, type);
    if (code != MPI_SUCCESS) return code;
    if (stage.block != NULL && status == MPI_STATUS_IGNORE) status = &own;
    /* One call counts only one lane. */
    pm_post_uncounted(comm, to, to_tag, PM_SENDS);
    pm_post_uncounted(comm, from, from_tag, PM_RECEIVES);
    code = PMPI_Sendrecv_replace(stage.host, count, type, to, to_tag, from, from_tag, comm, status);
    return received(&stage, code, status);
}

typedef int opening(struct pm_stage *, const char *, MPI_Comm, const void *, size_t, MPI_Datatype);

/* Makes the operation for a buffer. If MPI can use the memory at `*buffer` until the operation has
 * ended, stores NULL, and in `*buffer` the address for MPI. */
static int open_operation(struct pm_operation **made, opening *open, const char *function,
                          MPI_Comm comm, void **buffer, size_t count, MPI_Datatype type) {
    struct pm_stage stage;
    *made = NULL;
    int code = open(&stage, function, comm, *buffer, count, type);
    *buffer = stage.host;
    if (code != MPI_SUCCESS || stage.block == NULL) return code;
    *made = pm_operation_new();
    if (*made == NULL) {
        pm_close(&stage);
        return pm_raise(comm, MPI_ERR_NO_MEM, function, "there is no memory for a request");
    }
    (*made)->stage = stage;
    return MPI_SUCCESS;
}

/* Enters an operation for which MPI has made a request, or frees it if MPI returned an error. */
static int start(struct pm_operation *operation, int code, MPI_Request request) {
    if (code != MPI_SUCCESS) {
        pm_close(&operation->stage);
        free(operation);
    } else {
        operation->request = request;
        operation->is_active = !operation->is_persistent;
        pm_enter(operation);
    }
    return code;
}

/* Enters the operation of a stage for which MPI has made a request. Closes the stage if MPI
 * returned an error, or if the request needs no operation. */
static int keep(struct pm_operation *operation, int code, MPI_Request request) {
    if (code == MPI_SUCCESS && operation->stage.block == NULL && operation->stage.claim == NULL) {
        free(operation);
        return code;
    }
    return start(operation, code, request);
}

/* Makes an operation with an open buffer. */
static int open_message(struct pm_operation **made, const struct pm_message *it, int receives) {
    *made = pm_operation_new();
    if (*made == NULL)
        return pm_raise(it->comm, MPI_ERR_NO_MEM, it->function, "there is no memory for a request");
    struct pm_stage *stage = &(*made)->stage;
    size_t count = moved(it->count, it->partner);
    int code = receives ? pm_open_target(stage, it, count)
                        : pm_open(stage, it->function, it->comm, it->buffer, count, it->type);
    if (code != MPI_SUCCESS) free(*made);
    return code;
}

static int start_send(const struct pm_message *it, pm_start_send *send, int may_claim,
                      MPI_Request *request) {
    struct pm_operation *operation;
    if (!pm_has_driver()) return pm_post_isend(it, it->buffer, send, request);
    int code = open_message(&operation, it, 0);
    if (code != MPI_SUCCESS) {
        pm_claim_fail(it, code);
        return code;
    }
    struct pm_stage *stage = &operation->stage;
    if (may_claim && pm_claim_offer(stage, it, send, request, &code)) {
        if (code == MPI_SUCCESS) code = pm_claim_own_request(stage, request);
    } else {
        code = pm_fetch(stage);
        if (code == MPI_SUCCESS)
            code = pm_post_isend(it, stage->host, send, request);
        else
            pm_claim_fail(it, code);
    }
    return keep(operation, code, code == MPI_SUCCESS ? *request : MPI_REQUEST_NULL);
}

#define ISEND(NAME, MAY_CLAIM)                                                                  \
    PM_EXPORT int MPI_##NAME(const void *buffer, int count, MPI_Datatype type, int to, int tag, \
                             MPI_Comm comm, MPI_Request *request) {                             \
        struct pm_message it = {buffer, count, type, to, tag, comm, "MPI_" #NAME};              \
        return start_send(&it, PMPI_##NAME, MAY_CLAIM, request);                                \
    }

ISEND(Isend, 1)
ISEND(Ibsend, 0)
ISEND(Irsend, 1)
ISEND(Issend, 1)

PM_EXPORT int MPI_Irecv(void *buffer, int count, MPI_Datatype type, int from, int tag,
                        MPI_Comm comm, MPI_Request *request) {
    struct pm_message it = {buffer, count, type, from, tag, comm, "MPI_Irecv"};
    struct pm_operation *operation;
    if (!pm_has_driver()) {
        struct pm_stage plain;
        pm_open_plain(&plain, buffer);
        return pm_post_irecv(&it, &plain, request);
    }
    int code = open_message(&operation, &it, 1);
    if (code != MPI_SUCCESS) return code;
    const struct pm_comm *known = pm_comm_of(comm);
    if (known != NULL) operation->lane = (struct pm_lane){known->id, from, tag, PM_RECEIVES};
    operation->is_receive = 1;
    code = pm_post_irecv(&it, &operation->stage, request);
    return keep(operation, code, code == MPI_SUCCESS ? *request : MPI_REQUEST_NULL);
}

PM_EXPORT int MPI_Imrecv(void *buffer, int count, MPI_Datatype type, MPI_Message *message,
                         MPI_Request *request) {
    struct pm_operation *it;
    void *host = buffer;
    int code =
        open_operation(&it, pm_open, "MPI_Imrecv", MPI_COMM_WORLD, &host, moved(count, 0), type);
    if (code != MPI_SUCCESS) return code;
    if (it == NULL) return PMPI_Imrecv(host, count, type, message, request);
    it->is_receive = 1;
    code = PMPI_Imrecv(it->stage.host, count, type, message, request);
    return start(it, code, code == MPI_SUCCESS ? *request : MPI_REQUEST_NULL);
}

#define SEND_INIT(NAME)                                                                           \
    PM_EXPORT int MPI_##NAME(const void *buffer, int count, MPI_Datatype type, int to, int tag,   \
                             MPI_Comm comm, MPI_Request *request) {                               \
        struct pm_operation *it;                                                                  \
        void *host = (void *)buffer;                                                              \
        int code =                                                                                \
            open_operation(&it, pm_open_copy, "MPI_" #NAME, comm, &host, moved(count, to), type); \
        if (code != MPI_SUCCESS) return code;                                                     \
        pm_post_uncounted(comm, to, tag, PM_SENDS);                                               \
        if (it == NULL) return PMPI_##NAME(host, count, type, to, tag, comm, request);            \
        it->is_persistent = 1;                                                                    \
        code = PMPI_##NAME(it->stage.host, count, type, to, tag, comm, request);                  \
        return start(it, code, code == MPI_SUCCESS ? *request : MPI_REQUEST_NULL);                \
    }

SEND_INIT(Send_init)
SEND_INIT(Bsend_init)
SEND_INIT(Rsend_init)
SEND_INIT(Ssend_init)

PM_EXPORT int MPI_Recv_init(void *buffer, int count, MPI_Datatype type, int from, int tag,
                            MPI_Comm comm, MPI_Request *request) {
    struct pm_operation *it;
    void *host = buffer;
    int code =
        open_operation(&it, pm_open_copy, "MPI_Recv_init", comm, &host, moved(count, from), type);
    if (code != MPI_SUCCESS) return code;
    pm_post_uncounted(comm, from, tag, PM_RECEIVES);
    if (it == NULL) return PMPI_Recv_init(host, count, type, from, tag, comm, request);
    it->is_receive = it->is_persistent = 1;
    code = PMPI_Recv_init(it->stage.host, count, type, from, tag, comm, request);
    return start(it, code, code == MPI_SUCCESS ? *request : MPI_REQUEST_NULL);
}

/* Fetches the bytes of a persistent send that is about to start. */
static int before_start(MPI_Request request) {
    int code = MPI_SUCCESS;
    struct pm_operation *it = pm_claim(request);
    if (it == NULL) return MPI_SUCCESS;
    if (!it->is_receive) code = pm_fetch(&it->stage);
    if (code == MPI_SUCCESS) it->is_active = 1;
    pm_unclaim(it);
    return code;
}

/* Takes back what `before_start` noted, because MPI has not started the request. */
static void not_started(MPI_Request request) {
    struct pm_operation *it = pm_claim(request);
    if (it == NULL) return;
    it->is_active = 0;
    pm_unclaim(it);
}

PM_EXPORT int MPI_Start(MPI_Request *request) {
    if (request == NULL) return PMPI_Start(request);
    int code = before_start(*request);
    if (code != MPI_SUCCESS) return code;
    code = PMPI_Start(request);
    if (code != MPI_SUCCESS) not_started(*request);
    return code;
}

/* The requests start one by one, so that it is known which of them have started. */
PM_EXPORT int MPI_Startall(int count, MPI_Request requests[]) {
    if (requests == NULL) return PMPI_Startall(count, requests);
    for (int i = 0; i < count; i++) {
        int code = MPI_Start(&requests[i]);
        if (code != MPI_SUCCESS) return code;
    }
    return MPI_SUCCESS;
}
