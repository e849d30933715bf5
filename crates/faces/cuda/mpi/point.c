/* Messages from one rank to another. */
#include "path.h"

#include <stdlib.h>

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
    if (status == MPI_STATUS_IGNORE) status = &own;
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
    struct pm_lane lane;
    int code = pm_post_irecv(in, target, &request);
    if (code != MPI_SUCCESS) return received(target, code, status);
    int sent = send_now(out, PMPI_Send, PMPI_Isend, 1);
    /* Otherwise the call could wait for a message that nobody sends. */
    if (sent != MPI_SUCCESS) MPI_Cancel(&request);
    if (target->offer != NULL) pm_await(request);
    code = PMPI_Wait(&request, status);
    if (pm_post_is_wild(in, &lane)) pm_post_matched(&lane, code == MPI_SUCCESS ? status : NULL);
    code = received(target, code, status);
    return sent != MPI_SUCCESS ? sent : code;
}

/* MPI_Sendrecv with buffers that are open. */
static int sendrecv(const struct pm_message *out, struct pm_stage *source,
                    const struct pm_message *in, struct pm_stage *target, MPI_Status *status) {
    MPI_Request request;
    int code = MPI_SUCCESS;
    /* Both ranks of an exchange offer before they wait for offers. With several threads, no buffer
     * is large enough for that. */
    pm_post_offer(in, target);
    if (pm_claim_offer(source, out, PMPI_Isend, &request, &code)) {
        if (code != MPI_SUCCESS) return code;
        code = pm_post_recv(in, target, status);
        int sent = PMPI_Wait(&request, MPI_STATUS_IGNORE), ended = pm_claim_end(source);
        if (code == MPI_SUCCESS) code = sent;
        return code == MPI_SUCCESS ? ended : code;
    }
    code = pm_fetch(source);
    if (code != MPI_SUCCESS) {
        pm_claim_fail(out, code);
        return code;
    }
    pm_post_begin(out, PM_SENDS);
    pm_post_begin(in, PM_RECEIVES);
    code = PMPI_Sendrecv(source->host, out->count, out->type, out->partner, out->tag, target->host,
                         in->count, in->type, in->partner, in->tag, in->comm, status);
    pm_post_end(out, PM_SENDS, code, NULL);
    pm_post_end(in, PM_RECEIVES, code, status);
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
    if (status == MPI_STATUS_IGNORE) status = &own;
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
    struct pm_message out = {buffer, count, type, to, to_tag, comm, "MPI_Sendrecv_replace"};
    struct pm_message in = {buffer, count, type, from, from_tag, comm, "MPI_Sendrecv_replace"};
    int code = pm_open(&stage, out.function, comm, buffer, used, type);
    if (code != MPI_SUCCESS) return code;
    code = pm_fetch(&stage);
    if (code != MPI_SUCCESS) {
        pm_claim_fail(&out, code);
        pm_close(&stage);
        return code;
    }
    if (status == MPI_STATUS_IGNORE) status = &own;
    pm_post_begin(&out, PM_SENDS);
    pm_post_begin(&in, PM_RECEIVES);
    code = PMPI_Sendrecv_replace(stage.host, count, type, to, to_tag, from, from_tag, comm, status);
    pm_post_end(&out, PM_SENDS, code, NULL);
    pm_post_end(&in, PM_RECEIVES, code, status);
    return received(&stage, code, status);
}

/* Makes the operation for a buffer. If MPI can use the memory at `*buffer` until the operation has
 * ended, stores NULL, and in `*buffer` the address for MPI. */
static int open_operation(struct pm_operation **made, const char *function, MPI_Comm comm,
                          void **buffer, size_t count, MPI_Datatype type) {
    struct pm_stage stage;
    *made = NULL;
    int code = pm_open(&stage, function, comm, *buffer, count, type);
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
    if (code == MPI_SUCCESS && operation->stage.block == NULL && operation->stage.claim == NULL &&
        !operation->is_wild) {
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

int pm_isend(const struct pm_message *it, pm_start_send *send, int may_claim,
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
        return pm_isend(&it, PMPI_##NAME, MAY_CLAIM, request);                                  \
    }

ISEND(Isend, 1)
ISEND(Ibsend, 0)
ISEND(Irsend, 1)
ISEND(Issend, 1)

int pm_irecv(const struct pm_message *it, MPI_Request *request) {
    struct pm_operation *operation;
    struct pm_lane lane = {0};
    int is_wild = pm_post_is_wild(it, &lane);
    if (!is_wild && !pm_has_driver()) {
        struct pm_stage plain;
        pm_open_plain(&plain, it->buffer);
        return pm_post_irecv(it, &plain, request);
    }
    int code = open_message(&operation, it, 1);
    if (code != MPI_SUCCESS) return code;
    operation->lane = lane;
    operation->is_receive = 1;
    operation->is_wild = (char)is_wild;
    code = pm_post_irecv(it, &operation->stage, request);
    return keep(operation, code, code == MPI_SUCCESS ? *request : MPI_REQUEST_NULL);
}

PM_EXPORT int MPI_Irecv(void *buffer, int count, MPI_Datatype type, int from, int tag,
                        MPI_Comm comm, MPI_Request *request) {
    struct pm_message it = {buffer, count, type, from, tag, comm, "MPI_Irecv"};
    return pm_irecv(&it, request);
}

PM_EXPORT int MPI_Imrecv(void *buffer, int count, MPI_Datatype type, MPI_Message *message,
                         MPI_Request *request) {
    struct pm_operation *it;
    void *host = buffer;
    int code = open_operation(&it, "MPI_Imrecv", MPI_COMM_WORLD, &host, moved(count, 0), type);
    if (code != MPI_SUCCESS) return code;
    if (it == NULL) return PMPI_Imrecv(host, count, type, message, request);
    it->is_receive = 1;
    code = PMPI_Imrecv(it->stage.host, count, type, message, request);
    return start(it, code, code == MPI_SUCCESS ? *request : MPI_REQUEST_NULL);
}
