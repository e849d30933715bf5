/* Sends by offers of the receivers. */
#include "path.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Bytes for which a sender waits one second for an offer: it waits for about as long as the copies
 * and the message take that the path saves. */
#define WAIT_BYTES_PER_S 1e9

/* The wait for small messages, in seconds: some round trips on one host. */
#define WAIT_S_MIN 200e-6

/* The wait for an offer after a failure, in seconds. The receiver then learns of the failure, and
 * otherwise waits for a message that never comes. It may need this long on a crowded host. */
#define FAILED_WAIT_S 2.0

/* Halvings of the wait after messages without an offer. After 8 of them, 16 MiB wait for 65 us. */
enum { MISSES_MAX = 8 };

/* Number of offers from one rank after which it learns that they were read. */
enum { READ_MIN = 16 };

/* Most offers of one rank that this rank keeps: four times as many as a rank makes before this rank
 * has read them. The oldest ones go first. Their messages go through MPI. */
enum { KEPT_MAX = 256 };

/* Most workers of other ranks that this rank visits: each takes a link and a thread of its worker,
 * which has 1,024 for both directions. */
enum { VISITED_MAX = 512 };

/* An offer of another rank. */
struct heard {
    int rank;
    struct pm_offer_note note;
    struct heard *next;
};

/* A worker of another rank. */
struct host {
    int rank;
    uint64_t worker; /* the other rank's number of it */
    uint64_t own;    /* this rank's worker that has the link */
    uint64_t stranger;
    enum { INVITED, LINKED, UNREACHABLE } state;
    uint32_t length;
    struct host *next;
    char invitation[PM_INVITATION_BYTES];
};

/* What this rank knows of another rank. */
struct partner {
    int misses;
    int kept;            /* number of its offers in `heard` */
    uint64_t read, told; /* serials of the last offer that was read, and acknowledged */
};

/* A message on its way. */
struct pm_claim {
    uint64_t transfer;
    int has_failed;
    struct pm_stub stub;
};

static struct heard *heard; /* the newest first */
static struct host *hosts;
static struct partner *partners;
static int visited;
/* Set when a send may have been cancelled: then the counts of this rank are not those of MPI. */
static char are_stopped;

static struct partner *partner_of(int rank) {
    if (partners == NULL) partners = calloc((size_t)pm_world_size(), sizeof *partners);
    return partners == NULL ? NULL : &partners[rank];
}

static struct host *host_of(int rank, uint64_t worker) {
    struct host *it = hosts;
    while (it != NULL && (it->rank != rank || it->worker != worker)) it = it->next;
    return it;
}

static struct pm_lane lane_of(const struct pm_offer_note *note) {
    return (struct pm_lane){note->comm, note->rank, note->tag, PM_SENDS};
}

/* Tells a rank that its offers were read, so that it makes further ones. */
static void acknowledge(int rank) {
    struct partner *partner = partner_of(rank);
    if (partner == NULL || partner->read - partner->told < READ_MIN) return;
    struct pm_note note = {.kind = PM_NOTE_TAKEN, .taken = partner->read};
    if (pm_note_send(rank, &note)) partner->told = partner->read;
}

/* Removes the oldest offer of a rank. */
static void forget_oldest(int rank) {
    struct heard **oldest = NULL;
    for (struct heard **at = &heard; *at != NULL; at = &(*at)->next)
        if ((*at)->rank == rank) oldest = at;
    if (oldest == NULL) return;
    struct heard *it = *oldest;
    *oldest = it->next;
    free(it);
    partner_of(rank)->kept--;
}

/* Keeps an offer, if it may be of use. A sender also keeps an offer that it could not claim: if it
 * cannot fetch the bytes of the message either, the receiver learns of that by the offer. */
static void keep_offer(struct partner *partner, int rank, const struct pm_offer_note *note) {
    struct pm_lane lane = lane_of(note);
    /* An offer for a message that has been sent already is of no use. But it shows that a longer
     * wait finds offers. */
    int is_late = note->index < pm_lane_counted(&lane);
    if (is_late) partner->misses = 0;
    if (is_late || are_stopped) return;
    struct heard *it = calloc(1, sizeof *it);
    if (it == NULL) return;
    if (partner->kept == KEPT_MAX) forget_oldest(rank);
    *it = (struct heard){rank, *note, heard};
    heard = it;
    partner->kept++;
}

int pm_claims_kept(int rank) {
    pm_order_lock();
    int kept = partners == NULL || rank >= pm_world_size() ? 0 : partners[rank].kept;
    pm_order_unlock();
    return kept;
}

void pm_claims_stop(void) {
    pm_order_lock();
    are_stopped = 1;
    pm_order_unlock();
}

void pm_claim_note(int rank, const struct pm_note *note) {
    struct partner *partner = partner_of(rank);
    if (partner == NULL) return;
    if (note->kind == PM_NOTE_INVITATION && note->length <= PM_INVITATION_BYTES) {
        struct host *it = host_of(rank, note->worker) == NULL ? calloc(1, sizeof *it) : NULL;
        if (it == NULL) return;
        it->rank = rank;
        it->worker = note->worker;
        it->length = note->length;
        memcpy(it->invitation, note->of.invitation, note->length);
        it->next = hosts;
        hosts = it;
    } else if (note->kind == PM_NOTE_OFFER) {
        partner->read = note->of.offer.serial;
        keep_offer(partner, rank, &note->of.offer);
        acknowledge(rank);
    }
}

/* Removes the offers of a rank for messages that have been sent. Copies the offer for the next
 * message of a lane, and returns whether there is one. */
static int take_offer(int rank, const struct pm_lane *lane, struct pm_offer_note *offer) {
    int is_there = 0;
    for (struct heard **at = &heard; *at != NULL;) {
        struct heard *it = *at;
        struct pm_lane its = lane_of(&it->note);
        int is_lane = it->rank == rank && its.comm == lane->comm && its.partner == lane->partner &&
                      its.tag == lane->tag;
        uint64_t next = pm_lane_counted(&its);
        if (is_lane && it->note.index == next) {
            *offer = it->note;
            is_there = 1;
        } else if (it->note.index >= next) {
            at = &it->next;
            continue;
        }
        *at = it->next;
        partner_of(it->rank)->kept--;
        free(it);
    }
    return is_there;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Waits for an offer for the next message of a lane, for at most `wait` seconds. The caller holds
 * the lock of the order, also when the function returns. */
static int await_offer(int rank, const struct pm_lane *lane, double wait,
                       struct pm_offer_note *offer) {
    for (double until = 0;;) {
        /* While this thread had not the lock, another one may have closed the lane. */
        if (are_stopped || pm_lane_is_closed(lane)) return 0;
        pm_notes_read();
        if (take_offer(rank, lane, offer)) return 1;
        double now = seconds();
        if (until == 0) until = now + wait;
        if (now >= until) return 0;
        pm_order_unlock();
        sched_yield();
        pm_order_lock();
    }
}

/* Waits a moment for an offer for a message of `size` bytes. */
static int await_for_size(int rank, const struct pm_lane *lane, size_t size,
                          struct pm_offer_note *offer) {
    struct partner *partner = partner_of(rank);
    if (partner == NULL) return 0;
    double wait = (double)size / WAIT_BYTES_PER_S;
    if (wait < WAIT_S_MIN) wait = WAIT_S_MIN;
    for (int i = 0; i < partner->misses; i++) wait /= 2;
    int is_there = await_offer(rank, lane, wait, offer);
    if (is_there)
        partner->misses = 0;
    else if (partner->misses < MISSES_MAX)
        partner->misses++;
    return is_there;
}

/* Links the worker of an address to the worker that has made an offer. Returns its name, or 0. */
static uint64_t link_to(int rank, const struct pm_offer_note *offer, uintptr_t address,
                        size_t size) {
    struct host *host = host_of(rank, offer->worker);
    uint64_t own = 0;
    if (host == NULL || host->state == UNREACHABLE || !pm_grant_worker(address, size, &own))
        return 0;
    if (host->state == INVITED && visited < VISITED_MAX) {
        visited++;
        host->own = own;
        host->state = pm_grant_visit(address, host->invitation, host->length, &host->stranger)
                          ? LINKED
                          : UNREACHABLE;
    }
    /* The link is that of one worker of this rank. */
    return host->state == LINKED && host->own == own ? host->stranger : 0;
}

/* Claims an offer. Returns whether a stub must be sent: the bytes are on their way, or the memory
 * of this rank is lost. */
static int claim(struct pm_stage *stage, int rank, const struct pm_offer_note *offer) {
    uintptr_t address = stage->device + (uintptr_t)stage->low;
    char byte;
    struct pm_run run = {0, sizeof byte, 0, 1};
    struct pm_claim *made = offer->size >= stage->whole ? calloc(1, sizeof *made) : NULL;
    if (made == NULL) return 0;
    memcpy(made->stub.nonce, offer->nonce, sizeof made->stub.nonce);
    made->stub.length = stage->whole;
    /* Earlier work with the memory has ended behind this copy. */
    const char *error = pm_copy(PM_TO_HOST, address, (uintptr_t)&byte, &run);
    uint64_t stranger = error == NULL ? link_to(rank, offer, address, stage->whole) : 0;
    enum pm_sent sent = error != NULL ? PM_LOST : PM_REFUSED;
    if (stranger != 0)
        sent = pm_grant_send(address, stage->whole, stranger, offer->number, &made->transfer);
    if (sent == PM_REFUSED) {
        free(made);
        return 0;
    }
    made->has_failed = sent == PM_LOST;
    made->stub.has_failed = (uint64_t)made->has_failed;
    stage->claim = made;
    return 1;
}

int pm_claim_offer(struct pm_stage *stage, const struct pm_message *message, pm_start_send *start,
                   MPI_Request *request, int *code) {
    const struct pm_comm *comm = pm_comm_of(message->comm);
    if (comm == NULL || stage->whole < pm_path_bytes_min || message->partner < 0 ||
        message->partner >= comm->size || message->partner == comm->rank)
        return 0;
    struct pm_lane lane = {comm->id, message->partner, message->tag, PM_SENDS};
    int rank = comm->world[message->partner];
    struct pm_offer_note offer = {0};
    pm_order_lock();
    int is_there = !pm_lane_is_closed(&lane) && await_for_size(rank, &lane, stage->whole, &offer);
    int is_sent = is_there && claim(stage, rank, &offer);
    if (is_there && !is_sent) keep_offer(partner_of(rank), rank, &offer);
    if (is_sent) {
        *code = start(&stage->claim->stub, sizeof stage->claim->stub, MPI_BYTE, message->partner,
                      message->tag, message->comm, request);
        pm_lane_passed(&lane, *code);
    }
    pm_order_unlock();
    return is_sent;
}

static int query(void *state, MPI_Status *status) {
    (void)state;
    status->MPI_SOURCE = status->MPI_TAG = MPI_UNDEFINED;
    PMPI_Status_set_cancelled(status, 0);
    return PMPI_Status_set_elements(status, MPI_BYTE, 0);
}

static int let_go(void *state) {
    (void)state;
    return MPI_SUCCESS;
}

static int ignore_cancel(void *state, int has_ended) {
    (void)state, (void)has_ended;
    return MPI_SUCCESS;
}

int pm_claim_own_request(struct pm_stage *stage, MPI_Request *request) {
    MPI_Request own = MPI_REQUEST_NULL;
    int has_ended = 0;
    int code = PMPI_Request_get_status(*request, &has_ended, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS || !has_ended) return code;
    if (PMPI_Grequest_start(query, let_go, ignore_cancel, NULL, &own) != MPI_SUCCESS)
        return pm_claim_end(stage);
    PMPI_Grequest_complete(own);
    PMPI_Request_free(request);
    *request = own;
    return MPI_SUCCESS;
}

void pm_claim_fail(const struct pm_message *message, int code) {
    const struct pm_comm *comm = pm_comm_of(message->comm);
    struct pm_offer_note offer = {0};
    struct pm_stub stub = {.has_failed = 1};
    int class = MPI_SUCCESS;
    PMPI_Error_class(code, &class);
    int is_group = message->comm == pm_control();
    if (comm == NULL || (class != MPI_ERR_OTHER && !is_group) || message->partner < 0 ||
        message->partner >= comm->size || (message->partner == comm->rank && !is_group))
        return;
    struct pm_lane lane = {comm->id, message->partner, message->tag, PM_SENDS};
    pm_order_lock();
    if (await_offer(comm->world[message->partner], &lane, FAILED_WAIT_S, &offer)) {
        memcpy(stub.nonce, offer.nonce, sizeof stub.nonce);
        /* MPI sends a message of this size at once. */
        pm_lane_passed(&lane, PMPI_Send(&stub, sizeof stub, MPI_BYTE, message->partner,
                                        message->tag, message->comm));
    } else if (is_group) {
        pm_lane_passed(&lane,
                       PMPI_Send(NULL, 0, MPI_BYTE, message->partner, message->tag, message->comm));
    }
    pm_order_unlock();
}

int pm_claim_end(struct pm_stage *stage) {
    struct pm_claim *claim = stage->claim;
    if (claim == NULL) return MPI_SUCCESS;
    const char *error = "CUDA_ERROR_DEVICE_UNAVAILABLE";
    if (!claim->has_failed) error = pm_grant_end(claim->transfer);
    stage->claim = NULL;
    free(claim);
    if (error == NULL) {
        pm_path_moved(PM_SENDS);
        return MPI_SUCCESS;
    }
    return pm_raise(stage->comm, MPI_ERR_OTHER, stage->function,
                    "the worker of the device could not send the bytes of a buffer");
}
