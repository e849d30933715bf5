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
/* The same for memory that this process sees. */
extern size_t pm_seen_bytes_min;

/* Smallest block of a collective call that takes the path: the largest `pm_path_bytes_min` of all
 * ranks. */
extern size_t pm_group_bytes_min;

/* path.c */

/* A communicator whose lanes are counted. */
struct pm_comm {
    uint64_t id; /* the same in all its ranks */
    int rank;    /* of this process */
    int size;
    int *world; /* ranks in MPI_COMM_WORLD */
    int tag;    /* of messages of its collective calls in `pm_control`, or 0 if they have none */
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
/* Begins and ends the time in which MPI has a message of the lane, or of the lanes that match
 * wildcards, that is not counted. These lanes are closed meanwhile. */
void pm_lane_enter(const struct pm_lane *name);
void pm_lane_leave(const struct pm_lane *name);
/* Counts a message for which MPI has returned `code`. MPI may or may not have taken a message whose
 * call has failed. */
void pm_lane_passed(const struct pm_lane *name, int code);
uint64_t pm_lane_counted(const struct pm_lane *name);
/* Turns a lane off, or all lanes that match wildcards. */
void pm_lane_stop(const struct pm_lane *name);
/* Returns whether the number of the lane's next message is not known. */
int pm_lane_is_closed(const struct pm_lane *name);
/* Forgets the lanes of a communicator, and those of its collective calls. Takes the lock itself. */
void pm_lanes_forget(uint64_t comm, int tag);

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
/* The caller calls `pm_post_matched` at the end of a receive that names any source or any tag. */
int pm_post_irecv(const struct pm_message *message, struct pm_stage *stage, MPI_Request *request);
/* Waits until a request has ended, and leaves it to MPI. Some MPIs keep a core busy while they
 * wait. The workers need that core if no other one is free, so this function awaits the requests
 * of messages that workers may move. */
void pm_await(MPI_Request request);
/* Starts a persistent request, and offers the memory of a receive if that is possible. */
int pm_post_start(const struct pm_message *message, struct pm_stage *stage, enum pm_lane_way way,
                  MPI_Request *request);
/* Returns whether the memory of a receive could be offered. */
int pm_post_may_offer(const struct pm_message *message);
/* Opens the buffer of a receive of `count` elements, as `pm_open`. (stage.c) */
int pm_open_target(struct pm_stage *stage, const struct pm_message *message, size_t count);
/* Offers the memory of a receive that the calling thread posts next. Only for programs in which no
 * other thread calls MPI. */
void pm_post_offer(const struct pm_message *message, struct pm_stage *stage);
/* Counts a message for which MPI has returned `code`. */
void pm_post_count(const struct pm_message *message, enum pm_lane_way way, int code);
/* Begins and ends a call that MPI may block in. The message is counted at the end, when the status
 * of a receive tells its lane. */
void pm_post_begin(const struct pm_message *message, enum pm_lane_way way);
void pm_post_end(const struct pm_message *message, enum pm_lane_way way, int code,
                 const MPI_Status *status);
/* Returns whether a receive of the path's communicators names any source or any tag. Stores its
 * lane, if the communicator is one of them. */
int pm_post_is_wild(const struct pm_message *message, struct pm_lane *lane);
/* Counts what a receive got that has named any source or any tag, and whose request has ended.
 * `status` is NULL if MPI does not tell. */
void pm_post_matched(const struct pm_lane *lane, const MPI_Status *status);
/* Turns the lanes off that a call uses without counting. */
void pm_post_uncounted(MPI_Comm comm, int partner, int tag, enum pm_lane_way way);

/* point.c */

int pm_isend(const struct pm_message *it, pm_start_send *send, int may_claim, MPI_Request *request);
int pm_irecv(const struct pm_message *it, MPI_Request *request);
/* complete.c */
int pm_wait(MPI_Request *request, MPI_Status *status);

/* group.c: collective calls that consist of messages between two ranks */

struct pm_group {
    MPI_Comm comm; /* the program's */
    const struct pm_comm *known;
    const char *function;
    struct pm_member *members;
    int used, code;
};

/* Returns whether a block of `bytes` bytes is large enough for a message of its own. All ranks get
 * the same answer. */
int pm_group_moves(MPI_Comm comm, MPI_Count bytes);
/* Begins a call with at most `room` messages, if all ranks of the communicator want that. All of
 * them must call the function with the same number of bytes, that of the largest block. `wants`
 * says whether this rank's memory may take the path. Returns whether the call begins. */
int pm_group_agree(struct pm_group *group, MPI_Comm comm, MPI_Count bytes, int room, int wants);
/* Begins a call with at most `room` messages. Returns whether there is memory for it. */
int pm_group_begin(struct pm_group *group, MPI_Comm comm, int room);
/* Begin messages. All receives come before the first send. */
void pm_group_receive(struct pm_group *group, int from, void *buffer, int count, MPI_Datatype type);
void pm_group_send(struct pm_group *group, int to, const void *buffer, int count,
                   MPI_Datatype type);
/* Copies the block that this rank has for itself. Both places are on devices, without gaps. */
void pm_group_copy(struct pm_group *group, void *to, const void *from, MPI_Count bytes);
/* Waits for the messages. Returns the first error of the call. */
int pm_group_wait(struct pm_group *group);
/* Ends the call. Returns its code, after it has raised an error. */
int pm_group_end(struct pm_group *group);
/* Returns whether a buffer lies on a device and begins there, without gaps. (stage.c) */
int pm_is_whole(const void *buffer, size_t count, MPI_Datatype type);

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
 * error of the send. Without an offer, nobody can tell the receiver: then nothing is sent. A
 * message of a collective call is replaced by an empty one. */
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
