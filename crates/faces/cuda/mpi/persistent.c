/* Persistent requests. MPI has a request for each of them, with a block if the memory is on a
 * device.
 *
 * A receive that has offered its memory starts as any other one, and gets the stub in its block. A
 * send that claims an offer does not start MPI's request. It sends the stub with a request of its
 * own, and the program's request stays inactive: MPI reports it as ended to all calls except those
 * that wait for any or some of several requests (complete.c). */
#include "path.h"

#include <stdlib.h>

/* What a call asks for. */
struct asked {
    struct pm_message message;
    enum pm_lane_way way;
    int may_claim;
};

/* Makes the operation for a request, if the library needs one, and stores in `*buffer` the address
 * for MPI. */
static int open_request(struct pm_operation **made, const struct asked *asked, void **buffer) {
    const struct pm_message *it = &asked->message;
    const struct pm_comm *known = it->partner == MPI_PROC_NULL ? NULL : pm_comm_of(it->comm);
    size_t count = it->count > 0 && it->partner != MPI_PROC_NULL ? (size_t)it->count : 0;
    struct pm_stage stage;
    *made = NULL;
    int code = pm_open_copy(&stage, it->function, it->comm, it->buffer, count, it->type);
    *buffer = stage.host;
    if (code != MPI_SUCCESS || (stage.block == NULL && known == NULL)) return code;
    struct pm_operation *operation = pm_operation_new();
    if (operation == NULL) {
        pm_close(&stage);
        return pm_raise(it->comm, MPI_ERR_NO_MEM, it->function, "there is no memory for a request");
    }
    operation->stage = stage;
    operation->comm = it->comm;
    operation->lane = (struct pm_lane){0, it->partner, it->tag, asked->way};
    operation->is_persistent = 1;
    operation->is_receive = asked->way == PM_RECEIVES;
    operation->may_claim = (char)asked->may_claim;
    if (operation->is_receive) operation->is_wild = (char)pm_post_is_wild(it, &operation->lane);
    *made = operation;
    return MPI_SUCCESS;
}

/* Enters an operation for which MPI has made a request, or frees it if MPI returned an error. */
static int enter(struct pm_operation *operation, int code, const MPI_Request *request) {
    if (operation == NULL) return code;
    if (code == MPI_SUCCESS) {
        operation->request = *request;
        pm_enter(operation);
    } else {
        pm_close(&operation->stage);
        free(operation);
    }
    return code;
}

#define SEND_INIT(NAME, MAY_CLAIM)                                                              \
    PM_EXPORT int MPI_##NAME(const void *buffer, int count, MPI_Datatype type, int to, int tag, \
                             MPI_Comm comm, MPI_Request *request) {                             \
        struct asked asked = {                                                                  \
            {buffer, count, type, to, tag, comm, "MPI_" #NAME}, PM_SENDS, MAY_CLAIM};           \
        struct pm_operation *it;                                                                \
        void *host;                                                                             \
        int code = open_request(&it, &asked, &host);                                            \
        if (code != MPI_SUCCESS) return code;                                                   \
        return enter(it, PMPI_##NAME(host, count, type, to, tag, comm, request), request);      \
    }

SEND_INIT(Send_init, 1)
SEND_INIT(Bsend_init, 0)
SEND_INIT(Rsend_init, 1)
SEND_INIT(Ssend_init, 1)

PM_EXPORT int MPI_Recv_init(void *buffer, int count, MPI_Datatype type, int from, int tag,
                            MPI_Comm comm, MPI_Request *request) {
    struct asked asked = {{buffer, count, type, from, tag, comm, "MPI_Recv_init"}, PM_RECEIVES, 0};
    struct pm_operation *it;
    void *host;
    int code = open_request(&it, &asked, &host);
    if (code != MPI_SUCCESS) return code;
    return enter(it, PMPI_Recv_init(host, count, type, from, tag, comm, request), request);
}

/* Starts a claimed operation. */
static int start(struct pm_operation *it, MPI_Request *request) {
    const struct pm_lane *lane = &it->lane;
    struct pm_stage *stage = &it->stage;
    struct pm_message message = {
        .partner = lane->partner, .tag = lane->tag, .comm = it->comm, .function = "MPI_Start"};
    MPI_Request stub;
    int code = MPI_SUCCESS;
    stage->arrived = 0;
    /* The offer proves that the receive has been posted, so every kind of send may end now. */
    if (it->may_claim && pm_claim_offer(stage, &message, PMPI_Isend, &stub, &code)) {
        if (code == MPI_SUCCESS) code = PMPI_Wait(&stub, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS) {
            pm_claim_end(stage);
            return code;
        }
        it->is_stubbed = it->is_active = 1;
        return code;
    }
    if (lane->way == PM_SENDS) code = pm_fetch(stage);
    if (code != MPI_SUCCESS) {
        pm_claim_fail(&message, code);
        return code;
    }
    code = pm_post_start(&message, stage, lane->way, request);
    it->is_active = code == MPI_SUCCESS;
    return code;
}

PM_EXPORT int MPI_Start(MPI_Request *request) {
    struct pm_operation *it = request != NULL ? pm_claim(*request) : NULL;
    if (it == NULL) return PMPI_Start(request);
    int code = start(it, request);
    pm_unclaim(it);
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
