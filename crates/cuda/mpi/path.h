/* The path of messages from worker to worker. Copyright 2026 the Penstock authors.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A receive that names its source and its tag, and whose memory lies on a device, tells the sender
 * so with an offer: a grant of the worker, and the number of the receive in its lane. A sender that
 * has the offer for a message lets its worker claim the grant. Then it sends a stub in place of the
 * message: MPI matches the stub, and the workers move the bytes. If there is no offer yet, or if
 * the grant cannot be claimed, the message itself goes through MPI. So only a receive that has
 * offered gets a stub, and all other receives, probes and statuses are MPI's own. Decision 44 has
 * the reasons. */
#ifndef PENSTOCK_PATH_H
#define PENSTOCK_PATH_H

#include "pm.h"

/* Smallest message that takes the path. PENSTOCK_MPI_WORKERS can set it. */
extern size_t pm_path_bytes_min;

/* path.c */

/* A communicator whose lanes are counted. */
struct pm_comm {
    uint64_t id; /* the same in all its ranks */
    int rank;    /* of this process */
    int size;
    int *world; /* ranks in MPI_COMM_WORLD */
};

/* Returns what the library knows of a communicator, or NULL if its messages take no path. */
const struct pm_comm *pm_comm_of(MPI_Comm comm);
/* Returns whether several threads may call MPI at the same time. */
int pm_has_threads(void);
/* The communicator of the library, with the ranks of MPI_COMM_WORLD. */
MPI_Comm pm_control(void);
int pm_world_size(void);
/* Notes that workers have moved a message. */
void pm_path_moved(enum pm_lane_way way);
/* Leaves the path for good. MPI_Finalize calls it. */
void pm_path_close(void);

/* lane.c. The caller of these functions holds the lock of the order. */

/* Held while a message is counted and passed to MPI, so that the count is MPI's order. */
void pm_order_lock(void);
void pm_order_unlock(void);
void pm_lane_count(const struct pm_lane *name, int by);
/* Counts a message for which MPI has returned `code`. MPI may or may not have taken a message whose
 * call has failed. */
void pm_lane_passed(const struct pm_lane *name, int code);
uint64_t pm_lane_counted(const struct pm_lane *name);
/* Turns a lane off, or all lanes that match wildcards. */
void pm_lane_stop(const struct pm_lane *name);
int pm_lane_is_off(const struct pm_lane *name);
/* Takes the lock itself. */
void pm_lanes_forget(uint64_t comm);

/* offer.c: the receiver's side */

/* Makes an offer for a receive that has just been posted, if that is possible. It is not counted
 * yet. The caller holds the lock of the order. */
void pm_offer_make(struct pm_stage *stage, const struct pm_comm *comm, const struct pm_lane *lane,
                   MPI_Request request);
enum pm_settled { PM_PLAIN, PM_ARRIVED, PM_FAILED, PM_MIXED };
/* Ends the offer of a receive that has got `bytes` bytes. PM_PLAIN: the message is in the block.
 * PM_ARRIVED: its bytes are on the device, and `*bytes` is their number. PM_FAILED: the bytes did
 * not come. PM_MIXED: a call that the library does not count has received in the same lane. */
enum pm_settled pm_offer_settle(struct pm_stage *stage, size_t *bytes);
/* Ends the offer of a receive that got no message. */
void pm_offer_drop(struct pm_stage *stage);
/* Returns whether bytes that MPI received elsewhere are a stub for an offer. */
int pm_offer_is_stub(const void *bytes, size_t size);
/* Makes that MPI may cancel any receive, and ends the offers of this rank for good. */
void pm_offers_stop(void);
/* A receiver tells a sender how many of its offers it may still have. Called by send.c. */
void pm_offer_acknowledged(int rank, uint64_t number);

/* post.c: passes messages to MPI in the order in which they are counted. All functions return what
 * MPI has returned. */

struct pm_message {
    const void *buffer;
    int count;
    MPI_Datatype type;
    int partner, tag;
    MPI_Comm comm;
    const char *function;
};

typedef int pm_send(const void *, int, MPI_Datatype, int, int, MPI_Comm);
typedef int pm_start_send(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

/* Sends from `host`. */
int pm_post_send(const struct pm_message *message, const void *host, pm_send *send,
                 pm_start_send *start);
int pm_post_isend(const struct pm_message *message, const void *host, pm_start_send *start,
                  MPI_Request *request);
/* Receives to `stage->host`, and offers the memory of the device if that is possible. */
int pm_post_recv(const struct pm_message *message, struct pm_stage *stage, MPI_Status *status);
int pm_post_irecv(const struct pm_message *message, struct pm_stage *stage, MPI_Request *request);
/* Returns whether the memory of a receive could be offered. */
int pm_post_may_offer(const struct pm_message *message);
/* Opens the buffer of a receive of `count` elements, as `pm_open`. (stage.c) */
int pm_open_target(struct pm_stage *stage, const struct pm_message *message, size_t count);
/* Offers the memory of a receive that the calling thread posts next. Only for programs in which no
 * other thread calls MPI. */
void pm_post_offer(const struct pm_message *message, struct pm_stage *stage);
/* Counts a message for which MPI has returned `code`. */
void pm_post_count(const struct pm_message *message, enum pm_lane_way way, int code);
/* Turns the lanes off that a call uses without counting. */
void pm_post_uncounted(MPI_Comm comm, int partner, int tag, enum pm_lane_way way);

/* claim.c: the sender's side */

/* Sends a message by an offer of its receiver, if there is one. Returns whether it did. Then
 * `*code` is the result, and `*request` the request of the stub. */
int pm_claim_offer(struct pm_stage *stage, const struct pm_message *message, pm_start_send *start,
                   MPI_Request *request, int *code);
/* Gives the program a request that no other operation has, in place of that of a stub: MPI gives
 * several sends that have ended at once the same handle, and then the table of operations could not
 * tell their transfers apart. */
int pm_claim_own_request(struct pm_stage *stage, MPI_Request *request);
/* Ends the use of offers by this rank for good. */
void pm_claims_stop(void);
/* Returns the number of offers of a rank that this rank keeps. */
int pm_claims_kept(int rank);
/* Tells a receiver that has offered its memory that the bytes cannot be fetched. `code` is the
 * error of the send. Without an offer, nobody can tell the receiver: then nothing is sent. */
void pm_claim_fail(const struct pm_message *message, int code);
/* Waits until the memory of a message may change again. */
int pm_claim_end(struct pm_stage *stage);

/* note.c: messages between the libraries of two ranks */

enum pm_note_kind { PM_NOTE_OFFER = 1, PM_NOTE_INVITATION, PM_NOTE_TAKEN };

/* Most bytes of an invitation. A host with eight networks has eight addresses of at most 100
 * bytes. */
enum { PM_INVITATION_BYTES = 1000 };

enum { PM_NONCE_BYTES = 16 };

struct pm_offer_note {
    uint64_t comm, index, size, worker, number, serial;
    int rank, tag; /* of the receiver in the communicator, and of the lane */
    unsigned char nonce[PM_NONCE_BYTES];
};

struct pm_note {
    uint32_t kind;
    uint32_t length; /* of an invitation */
    uint64_t worker; /* of an invitation */
    uint64_t taken;  /* serial of the last offer that the sender has read */
    union {
        struct pm_offer_note offer;
        char invitation[PM_INVITATION_BYTES];
    } of;
};

/* Sends a note. Returns whether it is on its way. */
int pm_note_send(int world_rank, const struct pm_note *note);
/* Reads all notes that have come. */
void pm_notes_read(void);
/* Waits until all notes have left, for at most a moment. */
void pm_notes_finish(void);
/* claim.c: what the library knows from a note. */
void pm_claim_note(int world_rank, const struct pm_note *note);

/* What MPI matches in place of a message. */
struct pm_stub {
    unsigned char nonce[PM_NONCE_BYTES];
    uint64_t length;
    uint64_t has_failed;
    uint64_t zeros[4];
};

#endif
