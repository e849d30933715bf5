#include "area.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The few functions of CUDA that the test needs, without a CUDA toolkit. */
int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);
int cuDeviceGet(int *device, int ordinal);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(uintptr_t *address, size_t size);
int cuMemFree_v2(uintptr_t address);
int cuMemcpyDtoH_v2(void *to, uintptr_t from, size_t size);
int cuMemcpyHtoD_v2(uintptr_t to, const void *from, size_t size);
int cuMemcpyDtoD_v2(uintptr_t to, uintptr_t from, size_t size);
int cuMemsetD8_v2(uintptr_t to, unsigned char value, size_t size);
int cuCtxSynchronize(void);
int cuPointerGetAttribute(void *data, unsigned attribute, uintptr_t address);

void check(int holds, const char *condition, const char *file, int line) {
    if (holds) return;
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

void device_open(int rank) {
    int count = 0, device = 0;
    void *context = NULL;
    CHECK(cuInit(0) == 0);
    CHECK(cuDeviceGetCount(&count) == 0 && count > 0);
    CHECK(cuDeviceGet(&device, rank % count) == 0);
    CHECK(cuDevicePrimaryCtxRetain(&context, device) == 0);
    CHECK(cuCtxSetCurrent(context) == 0);
}

void *device_new(size_t size) {
    uintptr_t address = 0;
    CHECK(cuMemAlloc_v2(&address, size) == 0);
    return (void *)address;
}

void device_free(void *memory) { CHECK(cuMemFree_v2((uintptr_t)memory) == 0); }

static int is_device(const void *address) {
    unsigned type = 0;
    return cuPointerGetAttribute(&type, 2, (uintptr_t)address) == 0 && type == 2;
}

void device_copy(void *to, const void *from, size_t size) {
    if (is_device(to))
        CHECK(cuMemcpyHtoD_v2((uintptr_t)to, from, size) == 0);
    else if (is_device(from))
        CHECK(cuMemcpyDtoH_v2(to, (uintptr_t)from, size) == 0);
    else
        memcpy(to, from, size);
}

void device_fill(void *to, unsigned char value, size_t size) {
    CHECK(cuMemsetD8_v2((uintptr_t)to, value, size) == 0);
    CHECK(cuCtxSynchronize() == 0);
}

void device_move(void *to, const void *from, size_t size) {
    CHECK(cuMemcpyDtoD_v2((uintptr_t)to, (uintptr_t)from, size) == 0);
    CHECK(cuCtxSynchronize() == 0);
}

uint64_t random_state;

/* splitmix64 */
uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

int random_below(int limit) { return (int)(random_next(&random_state) % (uint64_t)limit); }

void area_make(struct area *area) {
    area->plain = malloc(AREA_BYTES);
    area->other = malloc(AREA_BYTES);
    area->device = device_new(AREA_BYTES);
    CHECK(area->plain != NULL && area->other != NULL);
}

void area_fill(struct area *area, uint64_t seed, int on_device) {
    for (size_t i = 0; i < AREA_BYTES; i += sizeof seed) {
        uint64_t word = random_next(&seed);
        memcpy(area->plain + i, &word, sizeof word);
    }
    area->tried = on_device ? area->device : area->other;
    device_copy(area->tried, area->plain, AREA_BYTES);
}

void area_change(struct area *area, char value) {
    for (size_t i = 0; i < AREA_BYTES; i++) area->plain[i] = (char)(area->plain[i] + value);
    device_copy(area->tried, area->plain, AREA_BYTES);
}

size_t area_differs(const struct area *area, const char *name) {
    size_t differing = 0, first = 0, last = 0;
    char *got = malloc(AREA_BYTES);
    CHECK(got != NULL);
    device_copy(got, area->tried, AREA_BYTES);
    for (size_t i = 0; i < AREA_BYTES; i++) {
        if (got[i] == area->plain[i]) continue;
        if (differing++ == 0) first = i;
        last = i;
    }
    free(got);
    if (differing > 0)
        fprintf(stderr, "%s: %zu bytes between %zu and %zu of %s memory are wrong\n", name,
                differing, first, last, area->tried == area->device ? "a device's" : "the host's");
    return differing;
}

void view_free(struct view *view) {
    if (view->is_derived) MPI_Type_free(&view->type);
    view->is_derived = 0;
}

/* Splits `elements` into blocks of equal length and returns their length. */
static int block_of(int elements) {
    int block = 1 + random_below(elements < 9 ? elements : 9);
    while (elements % block != 0) block--;
    return block;
}

/* Makes blocks with random gaps between them. */
static MPI_Datatype irregular(MPI_Datatype base, int elements, MPI_Aint extent, int form) {
    int number = 0, left = elements, place = 0, lengths[16], places[16];
    MPI_Aint bytes[16];
    MPI_Datatype made, bases[16];
    while (left > 0) {
        lengths[number] = number == 15 || left < 3 ? left : 1 + random_below(left);
        places[number] = place;
        bytes[number] = place * extent;
        bases[number] = base;
        place += lengths[number] + random_below(3);
        left -= lengths[number++];
    }
    switch (form) {
    case 0: MPI_Type_indexed(number, lengths, places, base, &made); break;
    case 1: MPI_Type_create_hindexed(number, lengths, bytes, base, &made); break;
    default: MPI_Type_create_struct(number, lengths, bytes, bases, &made); break;
    }
    return made;
}

static MPI_Datatype subarray(MPI_Datatype base, int elements) {
    int width = block_of(elements), rows = elements / width, depth = block_of(rows);
    int kept[3] = {rows / depth, depth, width}, order = random_below(2), sizes[3], starts[3];
    MPI_Datatype made;
    for (int d = 0; d < 3; d++) {
        starts[d] = random_below(2);
        sizes[d] = kept[d] + starts[d] + random_below(2);
    }
    MPI_Type_create_subarray(3, sizes, kept, starts, order ? MPI_ORDER_C : MPI_ORDER_FORTRAN, base,
                             &made);
    return made;
}

static void arrange(struct view *view, MPI_Datatype base, int elements, int copies) {
    MPI_Aint low, extent;
    MPI_Datatype inner, places_base = base;
    int block = block_of(elements > 0 ? elements : 1), rows = elements / block;
    int gap = random_below(4), places[64];
    view_free(view);
    MPI_Type_get_extent(base, &low, &extent);
    *view = (struct view){base, elements, 1, 16 * (size_t)random_below(8)};
    switch (elements == 0 ? 0 : random_below(13)) {
    case 1: MPI_Type_contiguous(block, base, &view->type), view->count = rows; break;
    case 2: MPI_Type_vector(rows, block, block + gap, base, &view->type), view->count = 1; break;
    case 3:
        MPI_Type_create_hvector(rows, block, (block + gap) * extent, base, &view->type);
        view->count = 1;
        break;
    case 4:
        /* From the end to the start. Without gaps, Open MPI 4.1.4 packs the elements of such a
         * vector in the wrong order, from bytes behind the first. */
        gap++;
        MPI_Type_vector(rows, block, -(block + gap), base, &view->type);
        view->offset += (size_t)(rows * (block + gap)) * (size_t)extent;
        view->count = 1;
        break;
    case 5: /* a column of a matrix, several times */
        MPI_Type_vector(block, 1, rows * copies + gap, base, &inner);
        MPI_Type_create_resized(inner, 0, extent, &view->type);
        MPI_Type_free(&inner);
        view->count = rows;
        break;
    case 6: MPI_Type_create_resized(base, 0, extent * (1 + gap), &view->type); break;
    case 7:
    case 8:
    case 9:
        view->type = irregular(base, block, extent, random_below(3));
        view->count = rows;
        break;
    case 10: view->type = subarray(base, elements), view->count = 1; break;
    case 11: /* vectors of pairs, so that there are three levels */
        if (block % 2 == 0)
            MPI_Type_vector(2, 1, 2, base, &inner);
        else
            MPI_Type_dup(base, &inner);
        MPI_Type_vector(rows, block % 2 == 0 ? block / 2 : block, block + gap, inner, &view->type);
        MPI_Type_free(&inner);
        view->count = 1;
        break;
    case 12:
        rows = rows > 64 ? 64 : rows;
        if (rows * block != elements) {
            view->is_derived = 0;
            return;
        }
        for (int r = 0; r < rows; r++) places[r] = r * (block + gap);
        MPI_Type_create_indexed_block(rows, block, places, places_base, &view->type);
        view->count = 1;
        break;
    default: view->is_derived = 0; return;
    }
    MPI_Type_commit(&view->type);
}

void view_make(struct view *view, MPI_Datatype base, int elements, int copies) {
    for (;;) {
        MPI_Aint low, extent, true_low, true_extent;
        arrange(view, base, elements, copies);
        MPI_Type_get_extent(view->type, &low, &extent);
        MPI_Type_get_true_extent(view->type, &true_low, &true_extent);
        MPI_Aint last = extent * ((MPI_Aint)view->count * copies - 1);
        if ((MPI_Aint)view->offset + (last > 0 ? last : 0) + true_low + true_extent <=
            (MPI_Aint)AREA_BYTES)
            return;
    }
}
