/* The random programs of stress.c: the state of one round, and the functions of its files. */
#ifndef PENSTOCK_TEST_STRESS_H
#define PENSTOCK_TEST_STRESS_H

#include "harness.h"

#define BUFFERS 5
#define SUBS 3 /* of each buffer, all except the last part */
#define PARTS (SUBS + 1)
#define IMAGES 2
#define OBJECTS (BUFFERS * (1 + SUBS) + IMAGES)
#define ROOTS (BUFFERS + IMAGES)
#define QUEUES_MAX 24
#define USERS 6
#define PENDING_MAX 64

typedef struct {
    cl_event event;
    int queue;
    unsigned serial; /* in its queue */
    unsigned held;   /* user events that must end before the command can end */
    int refs;
} Done;

typedef struct {
    Done *writer;
    Done *readers[PENDING_MAX];
    int reader_count;
} Part;

/* A buffer or image, with the content that it must have when all commands so far have run. */
typedef struct {
    cl_uint *model;
    size_t words, part_words; /* an image is one part */
    size_t width, height;     /* of an image */
    int parts;
    Part part[PARTS];
    void *host; /* of CL_MEM_USE_HOST_PTR */
} Root;

typedef struct {
    cl_mem mem;
    Root *root;
    size_t from, words; /* its words in the root */
    bool image;
} Object;

typedef struct {
    cl_command_queue queue;
    bool in_order, shared;
    unsigned serial, barrier; /* of the last command; of the last barrier */
    unsigned held, gate;      /* user events of all commands; of those before the barrier */
} Lane;

/* A read that is checked when its event has ended. */
typedef struct {
    cl_uint *got, *want;
    size_t words;
    Done *done;
} Look;

typedef struct {
    unsigned long long seed, state;
    cl_context in;
    Lane lanes[QUEUES_MAX];
    int lane_count;
    Root roots[ROOTS];
    Object objects[OBJECTS];
    int object_count, buffer_objects;
    cl_event users[USERS];
    bool user_events;
    Look looks[PENDING_MAX];
    int look_count;
    cl_kernel add, mix, picture;
    unsigned ops;
    char now[200];
} World;

/* The events that a command waits for. */
typedef struct {
    cl_event list[PENDING_MAX * 4];
    cl_uint count;
    unsigned held;
} Waits;

extern __thread World *here; /* the round of this thread */
extern bool trace;           /* print each command */

/* Prints the seed and the command, and ends the program. */
_Noreturn void wrong(const char *format, ...);

#define MUST(call)                                                              \
    do {                                                                        \
        cl_int code_ = (call);                                                  \
        if (code_ != CL_SUCCESS) wrong("%s gave %s", #call, error_name(code_)); \
    } while (0)

/* Random choices: the same seed yields the same program. */
unsigned pick(World *w, unsigned below);
bool chance(World *w, unsigned percent);
cl_uint *random_words(World *w, size_t words); /* the caller frees them */

/* stress-model.c: the enqueued commands and their dependencies. */
void say(World *w, const char *format, ...); /* announces the next command */
void drop(Done *done);
Done *keep(Done *done);
void end_users(World *w, unsigned which); /* completes these user events */
unsigned open_users(const World *w);
const cl_event *list(const Waits *waits); /* NULL if there are none */
void uses(World *w, Waits *waits, int queue, const Object *object, size_t from, size_t words,
          bool writes);
void used(const Object *object, size_t from, size_t words, bool writes, Done *done);
Done *enqueued(World *w, int queue, cl_event event, const Waits *waits);
void release_for(World *w, int queue, const Waits *waits); /* completes user events before a wait */
void maybe_user_event(World *w, Waits *waits);
cl_uint *model(const Object *object);
void check_words(const cl_uint *got, const cl_uint *want, size_t words, const char *what);
void check_looks(World *w, bool all); /* all: waits for reads that have not ended */

/* stress-commands.c: one random command. */
void step(World *w);

#endif
