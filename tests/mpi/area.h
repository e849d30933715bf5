/* Memory and datatypes for the random tests of MPI calls with device memory. */
#ifndef AREA_H
#define AREA_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of an area. The largest buffer of a random case needs about a third of it. */
#define AREA_BYTES ((size_t)1 << 17)

/* Two pieces of memory with equal content: `plain` is always the host's, `tried` is a device's in
 * most cases. A case runs once with each, and the results must be equal in every byte. */
struct area {
    char *plain, *tried, *device, *other;
};

void area_make(struct area *area);
/* Fills both pieces with the same random bytes. `on_device` chooses where `tried` lies. */
void area_fill(struct area *area, uint64_t seed, int on_device);
/* Adds `value` to each byte of both pieces. */
void area_change(struct area *area, char value);
/* Returns the number of bytes that differ. Says which ones if there are any. */
size_t area_differs(const struct area *area, const char *name);

/* Copies between any two pieces of memory. */
void device_copy(void *to, const void *from, size_t size);
void *device_new(size_t size);
void device_free(void *memory);
/* Work that the device itself does: these wait until it has ended. */
void device_fill(void *to, unsigned char value, size_t size);
void device_move(void *to, const void *from, size_t size);
void device_open(int rank);

/* The same random numbers on all ranks. */
extern uint64_t random_state;
uint64_t random_next(uint64_t *state);
int random_below(int limit);

/* Elements in memory: `count` elements of `type` at `offset` of an area. */
struct view {
    MPI_Datatype type;
    int count, is_derived;
    size_t offset;
};

/* Makes a view of `elements` elements of a base type, in a random arrangement. Frees the old. The
 * area has room for `copies` of it, one behind the other. */
void view_make(struct view *view, MPI_Datatype base, int elements, int copies);
void view_free(struct view *view);

/* Ends the program unless a condition holds. */
#define CHECK(condition) check(!!(condition), #condition, __FILE__, __LINE__)
void check(int holds, const char *condition, const char *file, int line);

#endif
