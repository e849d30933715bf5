/* The bytes of a buffer, from the constructors of its datatype. */
#include "pm.h"

#include <stdlib.h>
#include <string.h>

void pm_layout_free(struct pm_layout *layout) {
    free(layout->runs);
    memset(layout, 0, sizeof *layout);
}

/* Joins the last run to the one before it, if it is that one's next block. */
static void join(struct pm_layout *layout) {
    if (layout->used < 2) return;
    struct pm_run *before = &layout->runs[layout->used - 2];
    const struct pm_run *last = before + 1;
    if (last->count != 1 || last->length != before->length) return;
    if (before->count == 1) before->stride = last->offset - before->offset;
    if (last->offset != before->offset + (intptr_t)before->count * before->stride) return;
    before->count++;
    layout->used--;
}

/* Appends one block. */
static void append(struct pm_layout *layout, intptr_t offset, size_t length) {
    if (length == 0 || layout->fault != PM_FINE) return;
    struct pm_run *last = layout->used > 0 ? &layout->runs[layout->used - 1] : NULL;
    if (last != NULL && last->count == 1 && last->offset + (intptr_t)last->length == offset) {
        last->length += length;
        return;
    }
    join(layout);
    if (layout->used == layout->room) {
        size_t room = layout->room > 0 ? layout->room * 2 : 4;
        void *larger = realloc(layout->runs, room * sizeof *layout->runs);
        if (larger == NULL) {
            layout->fault = PM_NO_MEMORY;
            return;
        }
        layout->runs = larger;
        layout->room = room;
    }
    layout->runs[layout->used++] = (struct pm_run){offset, length, 0, 1};
}

/* Appends `count` copies of a part at the distance `step`. */
static void repeat(struct pm_layout *layout, const struct pm_layout *part, size_t count,
                   intptr_t base, intptr_t step) {
    if (layout->fault == PM_FINE) layout->fault = part->fault;
    if (part->used == 1 && part->runs->count == 1 && step == (intptr_t)part->runs->length) {
        append(layout, base + part->runs->offset, count * part->runs->length);
        return;
    }
    for (size_t i = 0; i < count && layout->fault == PM_FINE; i++)
        for (size_t r = 0; r < part->used; r++) {
            const struct pm_run *run = &part->runs[r];
            intptr_t start = base + (intptr_t)i * step + run->offset;
            for (size_t b = 0; b < run->count; b++)
                append(layout, start + (intptr_t)b * run->stride, run->length);
        }
}

/* Appends one element of a type that has no constructor. */
static void add_named(struct pm_layout *layout, MPI_Datatype type) {
    MPI_Count size = 0, low = 0, extent = 0;
    PMPI_Type_size_x(type, &size);
    PMPI_Type_get_true_extent_x(type, &low, &extent);
    if (size == extent) {
        append(layout, (intptr_t)low, (size_t)size);
    } else if (type == MPI_SHORT_INT) {
        struct pair {
            short value;
            int index;
        };
        append(layout, offsetof(struct pair, value), sizeof(short));
        append(layout, offsetof(struct pair, index), sizeof(int));
    } else {
        layout->fault = PM_NO_SUCH_TYPE;
    }
}

/* The arguments of the constructor of a type. */
struct contents {
    int *integers;
    MPI_Aint *addresses;
    MPI_Datatype *types;
    int integer_count, address_count, type_count, combiner;
};

/* Appends the rows of MPI_Type_create_subarray. */
static void add_subarray(struct pm_layout *layout, const struct contents *of,
                         const struct pm_layout *part, intptr_t extent) {
    int dims = of->integers[0];
    const int *sizes = of->integers + 1, *kept = sizes + dims, *starts = kept + dims;
    int is_c = of->integers[1 + 3 * dims] == MPI_ORDER_C;
    size_t rows = 1;
    /* Dimension `fastest` has neighbouring elements. */
    int fastest = is_c ? dims - 1 : 0;
    for (int d = 0; d < dims; d++)
        if (d != fastest) rows *= (size_t)kept[d];
    for (size_t row = 0; row < rows && layout->fault == PM_FINE; row++) {
        size_t left = row;
        intptr_t stride = extent, offset = 0;
        for (int i = 0; i < dims; i++) {
            int d = is_c ? dims - 1 - i : i;
            size_t index = 0;
            if (d != fastest) {
                index = left % (size_t)kept[d];
                left /= (size_t)kept[d];
            }
            offset += ((intptr_t)index + starts[d]) * stride;
            stride *= sizes[d];
        }
        repeat(layout, part, (size_t)kept[fastest], offset, extent);
    }
}

/* Appends the blocks of the constructors that make blocks of one type. */
static void add_blocks(struct pm_layout *layout, const struct contents *of) {
    const int *i = of->integers;
    const MPI_Aint *a = of->addresses;
    MPI_Aint low = 0, extent = 0;
    struct pm_layout part = {0};
    PMPI_Type_get_extent(of->types[0], &low, &extent);
    pm_layout_add(&part, of->types[0], 1, 0);
    pm_layout_end(&part);
    switch (of->combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED: repeat(layout, &part, 1, 0, extent); break;
    case MPI_COMBINER_CONTIGUOUS: repeat(layout, &part, (size_t)i[0], 0, extent); break;
    case MPI_COMBINER_VECTOR:
        for (int b = 0; b < i[0]; b++)
            repeat(layout, &part, (size_t)i[1], (intptr_t)b * i[2] * extent, extent);
        break;
    case MPI_COMBINER_HVECTOR:
        for (int b = 0; b < i[0]; b++)
            repeat(layout, &part, (size_t)i[1], (intptr_t)b * a[0], extent);
        break;
    case MPI_COMBINER_INDEXED:
        for (int b = 0; b < i[0]; b++)
            repeat(layout, &part, (size_t)i[1 + b], i[1 + i[0] + b] * extent, extent);
        break;
    case MPI_COMBINER_HINDEXED:
        for (int b = 0; b < i[0]; b++) repeat(layout, &part, (size_t)i[1 + b], a[b], extent);
        break;
    case MPI_COMBINER_INDEXED_BLOCK:
        for (int b = 0; b < i[0]; b++)
            repeat(layout, &part, (size_t)i[1], i[2 + b] * extent, extent);
        break;
    case MPI_COMBINER_HINDEXED_BLOCK:
        for (int b = 0; b < i[0]; b++) repeat(layout, &part, (size_t)i[1], a[b], extent);
        break;
    case MPI_COMBINER_SUBARRAY: add_subarray(layout, of, &part, extent); break;
    default: layout->fault = PM_NO_SUCH_TYPE;
    }
    pm_layout_free(&part);
}

static void add_struct(struct pm_layout *layout, const struct contents *of) {
    for (int b = 0; b < of->integers[0]; b++)
        pm_layout_add(layout, of->types[b], (size_t)of->integers[1 + b], of->addresses[b]);
}

/* The constructor gives the program handles of derived types, which the program must free. */
static void free_types(const struct contents *of) {
    for (int t = 0; t < of->type_count; t++) {
        int integers, addresses, types, combiner = MPI_COMBINER_NAMED;
        PMPI_Type_get_envelope(of->types[t], &integers, &addresses, &types, &combiner);
        if (combiner != MPI_COMBINER_NAMED) PMPI_Type_free(&of->types[t]);
    }
}

/* Appends one element. */
static void add_one(struct pm_layout *layout, MPI_Datatype type) {
    struct contents of = {0};
    PMPI_Type_get_envelope(type, &of.integer_count, &of.address_count, &of.type_count,
                           &of.combiner);
    switch (of.combiner) {
    case MPI_COMBINER_NAMED:
    case MPI_COMBINER_F90_REAL:
    case MPI_COMBINER_F90_COMPLEX:
    case MPI_COMBINER_F90_INTEGER: add_named(layout, type); return;
    default: break;
    }
    /* One more, because an allocation of no bytes may return NULL. */
    of.integers = calloc((size_t)of.integer_count + 1, sizeof *of.integers);
    of.addresses = calloc((size_t)of.address_count + 1, sizeof *of.addresses);
    of.types = calloc((size_t)of.type_count + 1, sizeof(MPI_Datatype));
    if (of.integers == NULL || of.addresses == NULL || of.types == NULL) {
        layout->fault = PM_NO_MEMORY;
    } else if (PMPI_Type_get_contents(type, of.integer_count, of.address_count, of.type_count,
                                      of.integers, of.addresses, of.types) != MPI_SUCCESS) {
        layout->fault = PM_NO_SUCH_TYPE;
    } else {
        if (of.combiner == MPI_COMBINER_STRUCT)
            add_struct(layout, &of);
        else if (of.type_count == 1)
            add_blocks(layout, &of);
        else
            layout->fault = PM_NO_SUCH_TYPE;
        free_types(&of);
    }
    free(of.integers);
    free(of.addresses);
    free(of.types);
}

void pm_layout_add(struct pm_layout *layout, MPI_Datatype type, size_t count, intptr_t base) {
    struct pm_layout part = {0};
    MPI_Aint low = 0, extent = 0;
    if (count == 0) return;
    PMPI_Type_get_extent(type, &low, &extent);
    add_one(&part, type);
    pm_layout_end(&part);
    repeat(layout, &part, count, base, extent);
    pm_layout_free(&part);
}

void pm_layout_end(struct pm_layout *layout) { join(layout); }
