/* Messages from one rank to another. */
#include "pm.h"

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

#define SEND(NAME)                                                                              \
    PM_EXPORT int MPI_##NAME(const void *buffer, int count, MPI_Datatype type, int to, int tag, \
                             MPI_Comm comm) {                                                   \
        struct pm_stage stage;                                                                  \
        int code = open_source(&stage, "MPI_" #NAME, comm, buffer, moved(count, to), type);     \
        if (code != MPI_SUCCESS) return code;                                                   \
        code = PMPI_##NAME(stage.host, count, type, to, tag, comm);                             \
        pm_close(&stage);                                                                       \
        return code;                                                                            \
    }

/* MPI_Bsend copies the bytes before it returns, so the block is free then. */
SEND(Send)
SEND(Bsend)
SEND(Rsend)
SEND(Ssend)

/* Ends a receive for which MPI returned `code`. */
static int received(struct pm_stage *stage, int code, const MPI_Status *status) {
    if (code == MPI_SUCCESS) code = pm_store_received(stage, status);
    pm_close(stage);
    return code;
}

PM_EXPORT int MPI_Recv(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                       MPI_Status *status) {
    struct pm_stage stage;
    MPI_Status own;
    int code = pm_open(&stage, "MPI_Recv", comm, buffer, moved(count, from), type);
    if (code != MPI_SUCCESS) return code;
    if (stage.block != NULL && status == MPI_STATUS_IGNORE) status = &own;
    code = PMPI_Recv(stage.host, count, type, from, tag, comm, status);
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

PM_EXPORT int MPI_Sendrecv(const void *from_buffer, int from_count, MPI_Datatype from_type, int to,
                           int to_tag, void *to_buffer, int to_count, MPI_Datatype to_type,
                           int from, int from_tag, MPI_Comm comm, MPI_Status *status) {
    const char *function = "MPI_Sendrecv";
    struct pm_stage source, target;
    MPI_Status own;
    int code = open_source(&source, function, comm, from_buffer, moved(from_count, to), from_type);
    if (code != MPI_SUCCESS) return code;
    code = pm_open(&target, function, comm, to_buffer, moved(to_count, from), to_type);
    if (code == MPI_SUCCESS) {
        if (target.block != NULL && status == MPI_STATUS_IGNORE) status = &own;
        code = PMPI_Sendrecv(source.host, from_count, from_type, to, to_tag, target.host, to_count,
                             to_type, from, from_tag, comm, status);
        code = received(&target, code, status);
    }
    pm_close(&source);
    return code;
}

PM_EXPORT int MPI_Sendrecv_replace(void *buffer, int count, MPI_Datatype type, int to, int to_tag,
                                   int from, int from_tag, MPI_Comm comm, MPI_Status *status) {
    struct pm_stage stage;
    MPI_Status own;
    size_t used = moved(count, to) > 0 ? moved(count, to) : moved(count, from);
    int code = open_source(&stage, "MPI_Sendrecv_replace", comm, buffer, used, type);
    if (code != MPI_SUCCESS) return code;
    if (stage.block != NULL && status == MPI_STATUS_IGNORE) status = &own;
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

#define ISEND(NAME)                                                                             \
    PM_EXPORT int MPI_##NAME(const void *buffer, int count, MPI_Datatype type, int to, int tag, \
                             MPI_Comm comm, MPI_Request *request) {                             \
        struct pm_operation *it;                                                                \
        void *host = (void *)buffer;                                                            \
        int code =                                                                              \
            open_operation(&it, pm_open, "MPI_" #NAME, comm, &host, moved(count, to), type);    \
        if (code != MPI_SUCCESS) return code;                                                   \
        if (it == NULL) return PMPI_##NAME(host, count, type, to, tag, comm, request);          \
        code = pm_fetch(&it->stage);                                                            \
        if (code == MPI_SUCCESS)                                                                \
            code = PMPI_##NAME(it->stage.host, count, type, to, tag, comm, request);            \
        return start(it, code, code == MPI_SUCCESS ? *request : MPI_REQUEST_NULL);              \
    }

ISEND(Isend)
ISEND(Ibsend)
ISEND(Irsend)
ISEND(Issend)

PM_EXPORT int MPI_Irecv(void *buffer, int count, MPI_Datatype type, int from, int tag,
                        MPI_Comm comm, MPI_Request *request) {
    struct pm_operation *it;
    void *host = buffer;
    int code = open_operation(&it, pm_open, "MPI_Irecv", comm, &host, moved(count, from), type);
    if (code != MPI_SUCCESS) return code;
    if (it == NULL) return PMPI_Irecv(host, count, type, from, tag, comm, request);
    it->is_receive = 1;
    code = PMPI_Irecv(it->stage.host, count, type, from, tag, comm, request);
    return start(it, code, code == MPI_SUCCESS ? *request : MPI_REQUEST_NULL);
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
