/* The calls that tell that requests have ended. */
#include "path.h"

#include <sched.h>
#include <stdlib.h>

/* The operations and statuses of the requests of one call. */
struct set {
    struct pm_operation **operations;
    MPI_Status *statuses; /* the program's, or ours if the program ignores them */
    MPI_Status *own;
    int known; /* number of requests that have an operation */
};

enum { FEW = 32 };

/* Room for the sets of calls with few requests. */
struct few {
    struct pm_operation *operations[FEW];
    MPI_Status statuses[FEW];
};

static void release(struct set *set, const struct few *few) {
    if (set->operations != few->operations) free(set->operations);
    if (set->own != few->statuses) free(set->own);
}

/* Claims the operations of requests. `set->known` is 0 if MPI can do the call alone. */
static int claim(struct set *set, struct few *few, int count, const MPI_Request *requests,
                 MPI_Status *statuses, const char *function) {
    set->known = 0;
    set->operations = few->operations;
    set->statuses = statuses;
    set->own = few->statuses;
    if (count <= 0 || requests == NULL) return MPI_SUCCESS;
    if (count > FEW) {
        /* Without device memory, a call costs no allocation. */
        struct pm_operation *first = NULL;
        for (int i = 0; i < count && first == NULL; i++) first = pm_claim(requests[i]);
        if (first == NULL) return MPI_SUCCESS;
        pm_unclaim(first);
        set->operations = calloc((size_t)count, sizeof(struct pm_operation *));
        set->own = calloc((size_t)count, sizeof(MPI_Status));
        if (set->operations == NULL || set->own == NULL) {
            release(set, few);
            return pm_raise(MPI_COMM_WORLD, MPI_ERR_NO_MEM, function,
                            "there is no memory for its requests");
        }
    }
    if (statuses == MPI_STATUSES_IGNORE) set->statuses = set->own;
    for (int i = 0; i < count; i++) {
        set->operations[i] = pm_claim(requests[i]);
        set->known += set->operations[i] != NULL;
    }
    return MPI_SUCCESS;
}

/* Ends the claim on one operation after a call of MPI. `has_ended` says whether the call reported
 * the end, and `code` whether that was a failure. */
static int settle(struct pm_operation *operation, int has_ended, int code, MPI_Status *status) {
    if (operation == NULL) return MPI_SUCCESS;
    if (!has_ended) {
        pm_unclaim(operation);
        return MPI_SUCCESS;
    }
    return pm_finish(operation, code == MPI_SUCCESS ? status : NULL);
}

/* Returns whether a worker may move the message of an operation. */
static int is_offered(const struct pm_operation *operation) {
    return operation != NULL && operation->stage.offer != NULL;
}

/* Returns whether workers may move a message of a set. */
static int has_offer(const struct set *set, int count) {
    int number = 0;
    for (int i = 0; i < count; i++) number += is_offered(set->operations[i]);
    return number > 0;
}

int pm_wait(MPI_Request *request, MPI_Status *status) {
    MPI_Status own;
    pm_reap();
    struct pm_operation *operation = request != NULL ? pm_claim(*request) : NULL;
    if (operation == NULL) return PMPI_Wait(request, status);
    if (status == MPI_STATUS_IGNORE) status = &own;
    if (is_offered(operation)) pm_await(*request);
    int code = PMPI_Wait(request, status);
    int stored = settle(operation, 1, code, status);
    return code != MPI_SUCCESS ? code : stored;
}

PM_EXPORT int MPI_Wait(MPI_Request *request, MPI_Status *status) {
    return pm_wait(request, status);
}

PM_EXPORT int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
    MPI_Status own;
    pm_reap();
    struct pm_operation *operation = request != NULL ? pm_claim(*request) : NULL;
    if (operation == NULL) return PMPI_Test(request, flag, status);
    if (status == MPI_STATUS_IGNORE) status = &own;
    int code = PMPI_Test(request, flag, status);
    int stored = settle(operation, code != MPI_SUCCESS || *flag, code, status);
    return code != MPI_SUCCESS ? code : stored;
}

/* Settles all operations of MPI_Waitall or MPI_Testall after the call. `code` is what MPI returned.
 * Returns what the program gets. */
static int settle_all(struct set *set, int count, const MPI_Request *requests, int code) {
    int result = code;
    for (int i = 0; i < count; i++) {
        struct pm_operation *it = set->operations[i];
        int own = code == MPI_ERR_IN_STATUS ? set->statuses[i].MPI_ERROR : code;
        /* A persistent request keeps its handle. */
        int has_ended = own == MPI_SUCCESS ||
                        (own != MPI_ERR_PENDING &&
                         (requests[i] == MPI_REQUEST_NULL || (it != NULL && it->is_persistent)));
        int stored = settle(it, has_ended, own, &set->statuses[i]);
        if (stored == MPI_SUCCESS) continue;
        if (result == MPI_SUCCESS) {
            result = MPI_ERR_IN_STATUS;
            for (int j = 0; j < count; j++) set->statuses[j].MPI_ERROR = MPI_SUCCESS;
        }
        set->statuses[i].MPI_ERROR = stored;
    }
    return result;
}

PM_EXPORT int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
    struct few few;
    struct set set;
    pm_reap();
    int code = claim(&set, &few, count, requests, statuses, "MPI_Waitall");
    if (code != MPI_SUCCESS) return code;
    if (set.known == 0) {
        release(&set, &few);
        return PMPI_Waitall(count, requests, statuses);
    }
    for (int i = 0; i < count; i++)
        if (is_offered(set.operations[i])) pm_await(requests[i]);
    code = PMPI_Waitall(count, requests, set.statuses);
    code = settle_all(&set, count, requests, code);
    release(&set, &few);
    return code;
}

PM_EXPORT int MPI_Testall(int count, MPI_Request requests[], int *flag, MPI_Status statuses[]) {
    struct few few;
    struct set set;
    pm_reap();
    int code = claim(&set, &few, count, requests, statuses, "MPI_Testall");
    if (code != MPI_SUCCESS) return code;
    if (set.known == 0) {
        release(&set, &few);
        return PMPI_Testall(count, requests, flag, statuses);
    }
    code = PMPI_Testall(count, requests, flag, set.statuses);
    if (code == MPI_SUCCESS && !*flag)
        for (int i = 0; i < count; i++) settle(set.operations[i], 0, code, NULL);
    else
        code = settle_all(&set, count, requests, code);
    release(&set, &few);
    return code;
}

/* Settles the operations of MPI_Waitany or MPI_Testany. `index` is the request that has ended, or
 * MPI_UNDEFINED. */
static int settle_one(struct set *set, int count, int index, int code, MPI_Status *status) {
    int stored = MPI_SUCCESS;
    for (int i = 0; i < count; i++) {
        int one = settle(set->operations[i], i == index, code, status);
        if (i == index) stored = one;
    }
    return code != MPI_SUCCESS ? code : stored;
}

/* Returns the first request from `first` on whose message a worker moves while MPI's own request is
 * inactive, or `count`. */
static int stubbed(const struct set *set, int count, int first) {
    while (first < count && (set->operations[first] == NULL || !set->operations[first]->is_stubbed))
        first++;
    return first;
}

/* Stores the status of a request that has nothing to tell. */
static void tell_nothing(MPI_Status *status) {
    MPI_Request none = MPI_REQUEST_NULL;
    PMPI_Wait(&none, status);
}

/* Does MPI_Waitany as `pm_await` waits. */
static int await_any(int count, MPI_Request requests[], int *index, MPI_Status *status) {
    for (int flag = 0;;) {
        int code = PMPI_Testany(count, requests, index, &flag, status);
        if (code != MPI_SUCCESS || flag) return code;
        sched_yield();
    }
}

PM_EXPORT int MPI_Waitany(int count, MPI_Request requests[], int *index, MPI_Status *status) {
    struct few few;
    struct set set;
    MPI_Status own;
    pm_reap();
    int code = claim(&set, &few, count, requests, MPI_STATUSES_IGNORE, "MPI_Waitany");
    if (code != MPI_SUCCESS) return code;
    if (set.known == 0) {
        release(&set, &few);
        return PMPI_Waitany(count, requests, index, status);
    }
    if (status == MPI_STATUS_IGNORE) status = &own;
    *index = MPI_UNDEFINED;
    if (stubbed(&set, count, 0) < count) {
        *index = stubbed(&set, count, 0);
        tell_nothing(status);
    } else {
        code = (has_offer(&set, count) ? await_any : PMPI_Waitany)(count, requests, index, status);
    }
    code = settle_one(&set, count, *index, code, status);
    release(&set, &few);
    return code;
}

PM_EXPORT int MPI_Testany(int count, MPI_Request requests[], int *index, int *flag,
                          MPI_Status *status) {
    struct few few;
    struct set set;
    MPI_Status own;
    pm_reap();
    int code = claim(&set, &few, count, requests, MPI_STATUSES_IGNORE, "MPI_Testany");
    if (code != MPI_SUCCESS) return code;
    if (set.known == 0) {
        release(&set, &few);
        return PMPI_Testany(count, requests, index, flag, status);
    }
    if (status == MPI_STATUS_IGNORE) status = &own;
    *index = MPI_UNDEFINED;
    if (stubbed(&set, count, 0) < count) {
        *index = stubbed(&set, count, 0);
        *flag = 1;
        tell_nothing(status);
    } else {
        code = PMPI_Testany(count, requests, index, flag, status);
    }
    int ended = code != MPI_SUCCESS || *flag ? *index : MPI_UNDEFINED;
    code = settle_one(&set, count, ended, code, status);
    release(&set, &few);
    return code;
}

/* Does MPI_Waitsome as `pm_await` waits. */
static int await_some(int count, MPI_Request requests[], int *ended, int indices[],
                      MPI_Status statuses[]) {
    for (;;) {
        int code = PMPI_Testsome(count, requests, ended, indices, statuses);
        if (code != MPI_SUCCESS || *ended != 0) return code;
        sched_yield();
    }
}

typedef int some_call(int, MPI_Request[], int *, int[], MPI_Status[]);

/* Does MPI_Waitsome or MPI_Testsome. */
static int complete_some(some_call *call, const char *function, int count, MPI_Request requests[],
                         int *ended, int indices[], MPI_Status statuses[]) {
    struct few few;
    struct set set;
    pm_reap();
    int code = claim(&set, &few, count, requests, statuses, function);
    if (code != MPI_SUCCESS) return code;
    if (set.known == 0) {
        release(&set, &few);
        return call(count, requests, ended, indices, statuses);
    }
    if (call == PMPI_Waitsome && has_offer(&set, count)) call = await_some;
    if (stubbed(&set, count, 0) == count) {
        code = call(count, requests, ended, indices, set.statuses);
    } else {
        *ended = 0;
        for (int i = stubbed(&set, count, 0); i < count; i = stubbed(&set, count, i + 1)) {
            tell_nothing(&set.statuses[*ended]);
            indices[(*ended)++] = i;
        }
    }
    int result = code, number = *ended == MPI_UNDEFINED ? 0 : *ended;
    for (int e = 0; e < number; e++) {
        int own = code == MPI_ERR_IN_STATUS ? set.statuses[e].MPI_ERROR : code;
        int stored = settle(set.operations[indices[e]], 1, own, &set.statuses[e]);
        set.operations[indices[e]] = NULL;
        if (stored == MPI_SUCCESS) continue;
        if (result == MPI_SUCCESS) {
            result = MPI_ERR_IN_STATUS;
            for (int j = 0; j < number; j++) set.statuses[j].MPI_ERROR = MPI_SUCCESS;
        }
        set.statuses[e].MPI_ERROR = stored;
    }
    for (int i = 0; i < count; i++) settle(set.operations[i], 0, code, NULL);
    release(&set, &few);
    return result;
}

PM_EXPORT int MPI_Waitsome(int count, MPI_Request requests[], int *ended, int indices[],
                           MPI_Status statuses[]) {
    return complete_some(PMPI_Waitsome, "MPI_Waitsome", count, requests, ended, indices, statuses);
}

PM_EXPORT int MPI_Testsome(int count, MPI_Request requests[], int *ended, int indices[],
                           MPI_Status statuses[]) {
    return complete_some(PMPI_Testsome, "MPI_Testsome", count, requests, ended, indices, statuses);
}

/* The request lives on, but the program may use what it has received. */
PM_EXPORT int MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status) {
    MPI_Status own;
    pm_reap();
    struct pm_operation *operation = pm_claim(request);
    if (operation == NULL) return PMPI_Request_get_status(request, flag, status);
    if (status == MPI_STATUS_IGNORE) status = &own;
    int code = PMPI_Request_get_status(request, flag, status), stored = MPI_SUCCESS;
    if (code == MPI_SUCCESS && *flag && operation->is_receive && operation->is_active &&
        !operation->is_delivered) {
        stored = pm_store_received(&operation->stage, status);
        operation->is_delivered = 1;
    } else if (code == MPI_SUCCESS && *flag && operation->is_delivered) {
        pm_tell_arrived(&operation->stage, status);
    }
    pm_unclaim(operation);
    return code != MPI_SUCCESS ? code : stored;
}

PM_EXPORT int MPI_Request_free(MPI_Request *request) {
    pm_reap();
    struct pm_operation *operation = request != NULL ? pm_claim(*request) : NULL;
    if (operation == NULL) return PMPI_Request_free(request);
    if (operation->is_active) {
        /* MPI still uses the block. */
        pm_abandon(operation);
        *request = MPI_REQUEST_NULL;
        return MPI_SUCCESS;
    }
    int code = PMPI_Request_free(request);
    pm_drop(operation);
    return code;
}
