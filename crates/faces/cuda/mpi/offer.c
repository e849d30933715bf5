/* Offers of receives to their senders. */
#include "path.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/* Most offers to one rank that it has not read. It reads them when it sends from a device. */
enum { UNREAD_MAX = 64 };

/* Most workers of other ranks that this rank invites: each takes a link and a thread of the worker,
 * which admits 1,024. */
enum { INVITED_MAX = 512 };

/* Longest wait of MPI_Cancel for a message whose sender has claimed an offer. The sender sends the
 * stub at once. */
enum { CANCEL_WAIT_S = 30 };

struct pm_offer {
    unsigned char nonce[PM_NONCE_BYTES];
    uint64_t transfer;
    MPI_Request request;
    char is_revoked; /* nobody can claim it any more, and the transfer is forgotten */
    struct pm_offer *next;
};

/* The worker of a sending rank that may claim offers of one of this rank's workers. */
struct guest {
    int rank;
    uint64_t worker, stranger;
    struct guest *next;
};

/* The number of offers to a rank, and of those that it has read. */
struct credit {
    uint64_t made, read;
};

static struct pm_offer *offers;
static struct guest *guests;
static int invited;
static struct credit *credits;
static char are_stopped;
/* Held beside the lock of the order, for `offers`. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void pm_offer_acknowledged(int rank, uint64_t number) {
    if (credits != NULL && number <= credits[rank].made && number > credits[rank].read)
        credits[rank].read = number;
}

/* Returns the name of a rank's worker at a worker of this rank, or 0. Invites it if it is new. */
static uint64_t guest_of(int rank, uint64_t worker, uintptr_t address) {
    struct guest *it = guests;
    while (it != NULL && (it->rank != rank || it->worker != worker)) it = it->next;
    if (it != NULL) return it->stranger;
    if (invited >= INVITED_MAX || (it = calloc(1, sizeof *it)) == NULL) return 0;
    /* A rank that could not be invited is not invited again. */
    *it = (struct guest){rank, worker, 0, guests};
    guests = it;
    struct pm_note note = {.kind = PM_NOTE_INVITATION, .worker = worker};
    size_t length = 0;
    uint64_t stranger = 0;
    if (!pm_grant_invite(address, &stranger, note.of.invitation, &length, PM_INVITATION_BYTES))
        return 0;
    invited++;
    note.length = (uint32_t)length;
    if (pm_note_send(rank, &note)) it->stranger = stranger;
    return it->stranger;
}

/* Returns whether this rank may make one more offer to a rank. */
static int has_credit(int rank) {
    if (credits == NULL) credits = calloc((size_t)pm_world_size(), sizeof *credits);
    if (credits == NULL) return 0;
    if (credits[rank].made - credits[rank].read >= UNREAD_MAX / 2) pm_notes_read();
    return credits[rank].made - credits[rank].read < UNREAD_MAX;
}

void pm_offer_make(struct pm_stage *stage, const struct pm_comm *comm, const struct pm_lane *lane,
                   MPI_Request request) {
    uintptr_t address = stage->device + (uintptr_t)stage->low;
    uint64_t worker = 0;
    int rank = comm->world[lane->partner];
    if (are_stopped || lane->partner == comm->rank || pm_lane_is_closed(lane) || !has_credit(rank))
        return;
    /* Earlier work with the memory has ended behind this copy. */
    char byte;
    struct pm_run run = {0, sizeof byte, 0, 1};
    if (pm_copy(PM_TO_HOST, address, (uintptr_t)&byte, &run) != NULL) return;
    if (!pm_grant_worker(address, stage->whole, &worker)) return;
    uint64_t stranger = guest_of(rank, worker, address);
    struct pm_offer *offer = stranger != 0 ? calloc(1, sizeof *offer) : NULL;
    struct pm_note note = {.kind = PM_NOTE_OFFER};
    struct pm_offer_note *of = &note.of.offer;
    *of = (struct pm_offer_note){.comm = lane->comm,
                                 .index = pm_lane_counted(lane),
                                 .size = stage->whole,
                                 .worker = worker,
                                 .serial = credits[rank].made + 1,
                                 .rank = comm->rank,
                                 .tag = lane->tag};
    if (offer == NULL) return;
    if (getrandom(of->nonce, sizeof of->nonce, 0) != (ssize_t)sizeof of->nonce) {
        free(offer);
        return;
    }
    if (!pm_grant_make(address, stage->whole, stranger, &offer->transfer, &of->number)) {
        /* The worker of the sender may be lost. This offer lets the sender say so. */
        of->size = 0;
        offer->is_revoked = 1;
    }
    memcpy(offer->nonce, of->nonce, sizeof offer->nonce);
    offer->request = request;
    pthread_mutex_lock(&lock);
    offer->next = offers;
    offers = offer;
    pthread_mutex_unlock(&lock);
    stage->offer = offer;
    if (pm_note_send(rank, &note))
        credits[rank].made++;
    else
        pm_offer_drop(stage);
}

/* Takes the stage's offer out of the list. */
static struct pm_offer *take(struct pm_stage *stage) {
    struct pm_offer *offer = stage->offer;
    stage->offer = NULL;
    if (offer == NULL) return NULL;
    pthread_mutex_lock(&lock);
    struct pm_offer **at = &offers;
    while (*at != NULL && *at != offer) at = &(*at)->next;
    if (*at != NULL) *at = offer->next;
    pthread_mutex_unlock(&lock);
    return offer;
}

/* Makes sure that nobody writes the memory of an offer any more. Returns whether somebody has
 * written it. */
static int close_grant(const struct pm_offer *offer) {
    if (offer->is_revoked || pm_grant_revoke(offer->transfer)) return 0;
    return pm_grant_end(offer->transfer) == NULL;
}

enum pm_settled pm_offer_settle(struct pm_stage *stage, size_t *bytes) {
    const struct pm_stub *stub = (const struct pm_stub *)(stage->block);
    struct pm_offer *offer = take(stage);
    enum pm_settled settled = PM_PLAIN;
    if (*bytes == sizeof *stub && memcmp(stub->nonce, offer->nonce, sizeof offer->nonce) == 0) {
        settled = PM_FAILED;
        *bytes = (size_t)stub->length;
        if (stub->has_failed)
            close_grant(offer);
        else if (!offer->is_revoked && pm_grant_end(offer->transfer) == NULL)
            settled = PM_ARRIVED;
    } else if (close_grant(offer)) {
        settled = PM_MIXED;
    }
    if (settled == PM_ARRIVED) pm_path_moved(PM_RECEIVES);
    free(offer);
    return settled;
}

void pm_offer_drop(struct pm_stage *stage) {
    struct pm_offer *offer = stage->offer;
    if (offer == NULL) return;
    if (!offer->is_revoked && !pm_grant_revoke(offer->transfer)) {
        /* Its stub may still come. It stays in the list, so that another receive knows it. */
        pm_grant_end(offer->transfer);
        offer->is_revoked = 1;
        stage->offer = NULL;
        return;
    }
    free(take(stage));
}

int pm_offer_is_stub(const void *bytes, size_t size) {
    int is_one = 0;
    if (size != sizeof(struct pm_stub)) return 0;
    pthread_mutex_lock(&lock);
    for (const struct pm_offer *it = offers; it != NULL && !is_one; it = it->next)
        is_one = memcmp(it->nonce, bytes, sizeof it->nonce) == 0;
    pthread_mutex_unlock(&lock);
    return is_one;
}

/* Revokes all offers that nobody has claimed. Returns whether the receive of a claimed one still
 * waits for its stub. */
static int revoke_all(void) {
    int waits = 0;
    pthread_mutex_lock(&lock);
    for (struct pm_offer *it = offers; it != NULL; it = it->next) {
        int has_ended = 0;
        MPI_Status status;
        if (!it->is_revoked) it->is_revoked = (char)pm_grant_revoke(it->transfer);
        if (it->is_revoked) continue;
        struct pm_operation *operation =
            it->request == MPI_REQUEST_NULL ? NULL : pm_claim(it->request);
        if (operation != NULL) {
            PMPI_Request_get_status(it->request, &has_ended, &status);
            pm_unclaim(operation);
        }
        waits |= !has_ended;
    }
    pthread_mutex_unlock(&lock);
    return waits;
}

void pm_offers_stop(void) {
    const struct timespec pause = {0, 100000};
    struct timespec start, now;
    pm_order_lock();
    are_stopped = 1;
    pm_order_unlock();
    clock_gettime(CLOCK_MONOTONIC, &start);
    /* A claimed offer means that its message has been sent, and all earlier ones of its lane. They
     * must meet their receives before one of these is cancelled. Otherwise each later message of
     * the lane would meet the receive before its own. */
    while (revoke_all()) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec > CANCEL_WAIT_S) {
            fprintf(stderr, "penstock: MPI_Cancel: a message that its sender has begun to send did "
                            "not come\n");
            return;
        }
        nanosleep(&pause, NULL);
    }
}
