/* Calls of MPI that take buffers and that the library does not serve. If a buffer is on a device,
 * the call fails with a clear error. Otherwise MPI would end the process with a signal. */
#include "pm.h"

/* Arrays of constants, which a macro cannot take with their brackets and a comma. */
typedef const int ints[];
typedef const MPI_Datatype types[];
typedef const MPI_Aint aints[];

static const char reason[] =
    "a buffer is on a device, which this call does not support; copy the buffer to the host";

/* Returns whether one of two buffers is on a device. */
static int any(const void *one, const void *other) {
    if (!pm_has_driver()) return 0;
    return pm_is_device((uintptr_t)one) || pm_is_device((uintptr_t)other);
}

#define LIST(...) __VA_ARGS__

/* A call that is refused if ONE or OTHER is on a device. RAISE raises the error and gives its code.
 */
#define CALL(NAME, PARAMETERS, ARGUMENTS, ONE, OTHER, RAISE) \
    PM_EXPORT int MPI_##NAME(LIST PARAMETERS) {              \
        const char *function = "MPI_" #NAME;                 \
        if (any(ONE, OTHER)) return RAISE;                   \
        return PMPI_##NAME(LIST ARGUMENTS);                  \
    }

#define AT_COMM pm_raise(comm, MPI_ERR_BUFFER, function, reason)
#define AT_WORLD pm_raise(MPI_COMM_WORLD, MPI_ERR_BUFFER, function, reason)
#define AT_WINDOW at_window(win, function)
#define AT_FILE at_file(file, function)

static int at_window(MPI_Win win, const char *function) {
    int code = pm_code(MPI_ERR_BUFFER, function, reason);
    PMPI_Win_call_errhandler(win, code);
    return code;
}

static int at_file(MPI_File file, const char *function) {
    int code = pm_code(MPI_ERR_BUFFER, function, reason);
    PMPI_File_call_errhandler(file, code);
    return code;
}

/* A collective call, and the same call with a request. */
#define NOW(NAME, PARAMETERS, ARGUMENTS) \
    CALL(NAME, (LIST PARAMETERS, MPI_Comm comm), (LIST ARGUMENTS, comm), a, b, AT_COMM)
#define LATER(NAME, PARAMETERS, ARGUMENTS)                              \
    CALL(NAME, (LIST PARAMETERS, MPI_Comm comm, MPI_Request * request), \
         (LIST ARGUMENTS, comm, request), a, b, AT_COMM)
#define BOTH(NAME, LATER_NAME, PARAMETERS, ARGUMENTS) \
    NOW(NAME, PARAMETERS, ARGUMENTS)                  \
    LATER(LATER_NAME, PARAMETERS, ARGUMENTS)

/* Parameters that several calls have in common, and their names. */
#define REDUCED (const void *a, void *b, int n, MPI_Datatype t, MPI_Op op)
#define REDUCED_NAMES (a, b, n, t, op)
#define MOVED (const void *a, int n, MPI_Datatype t, void *b, int m, MPI_Datatype u)
#define MOVED_NAMES (a, n, t, b, m, u)
#define GATHERED (const void *a, int n, MPI_Datatype t, void *b, ints m, ints d, MPI_Datatype u)
#define GATHERED_NAMES (a, n, t, b, m, d, u)
#define SCATTERED (const void *a, ints n, ints d, MPI_Datatype t, void *b, int m, MPI_Datatype u)
#define SCATTERED_NAMES (a, n, d, t, b, m, u)
#define EXCHANGED \
    (const void *a, ints n, ints d, MPI_Datatype t, void *b, ints m, ints e, MPI_Datatype u)
#define EXCHANGED_NAMES (a, n, d, t, b, m, e, u)
#define TYPED (const void *a, ints n, ints d, types t, void *b, ints m, ints e, types u)
#define TYPED_NEAR (const void *a, ints n, aints d, types t, void *b, ints m, aints e, types u)

BOTH(Reduce, Ireduce, (LIST REDUCED, int root), (LIST REDUCED_NAMES, root))
BOTH(Scan, Iscan, REDUCED, REDUCED_NAMES)
BOTH(Exscan, Iexscan, REDUCED, REDUCED_NAMES)
BOTH(Reduce_scatter_block, Ireduce_scatter_block, REDUCED, REDUCED_NAMES)
BOTH(Reduce_scatter, Ireduce_scatter, (const void *a, void *b, ints n, MPI_Datatype t, MPI_Op op),
     REDUCED_NAMES)
BOTH(Gather, Igather, (LIST MOVED, int root), (LIST MOVED_NAMES, root))
BOTH(Scatter, Iscatter, (LIST MOVED, int root), (LIST MOVED_NAMES, root))
BOTH(Gatherv, Igatherv, (LIST GATHERED, int root), (LIST GATHERED_NAMES, root))
BOTH(Scatterv, Iscatterv, (LIST SCATTERED, int root), (LIST SCATTERED_NAMES, root))
BOTH(Alltoallw, Ialltoallw, TYPED, EXCHANGED_NAMES)
BOTH(Neighbor_allgather, Ineighbor_allgather, MOVED, MOVED_NAMES)
BOTH(Neighbor_allgatherv, Ineighbor_allgatherv, GATHERED, GATHERED_NAMES)
BOTH(Neighbor_alltoall, Ineighbor_alltoall, MOVED, MOVED_NAMES)
BOTH(Neighbor_alltoallv, Ineighbor_alltoallv, EXCHANGED, EXCHANGED_NAMES)
BOTH(Neighbor_alltoallw, Ineighbor_alltoallw, TYPED_NEAR, EXCHANGED_NAMES)
LATER(Iallreduce, REDUCED, REDUCED_NAMES)
LATER(Iallgather, MOVED, MOVED_NAMES)
LATER(Ialltoall, MOVED, MOVED_NAMES)
LATER(Iallgatherv, GATHERED, GATHERED_NAMES)
LATER(Ialltoallv, EXCHANGED, EXCHANGED_NAMES)
CALL(Ibcast, (void *a, int n, MPI_Datatype t, int root, MPI_Comm comm, MPI_Request *request),
     (a, n, t, root, comm, request), a, NULL, AT_COMM)

CALL(Pack, (const void *a, int n, MPI_Datatype t, void *b, int m, int *at, MPI_Comm comm),
     (a, n, t, b, m, at, comm), a, b, AT_COMM)
CALL(Unpack, (const void *a, int n, int *at, void *b, int m, MPI_Datatype t, MPI_Comm comm),
     (a, n, at, b, m, t, comm), a, b, AT_COMM)
CALL(Reduce_local, REDUCED, REDUCED_NAMES, a, b, AT_WORLD)
CALL(Buffer_attach, (void *a, int n), (a, n), a, NULL, AT_WORLD)

CALL(Win_create, (void *a, MPI_Aint n, int unit, MPI_Info info, MPI_Comm comm, MPI_Win *win),
     (a, n, unit, info, comm, win), a, NULL, AT_COMM)
CALL(Win_attach, (MPI_Win win, void *a, MPI_Aint n), (win, a, n), a, NULL, AT_WINDOW)
#define REMOTE int rank, MPI_Aint at, int m, MPI_Datatype u
CALL(Put, (const void *a, int n, MPI_Datatype t, REMOTE, MPI_Win win),
     (a, n, t, rank, at, m, u, win), a, NULL, AT_WINDOW)
CALL(Get, (void *a, int n, MPI_Datatype t, REMOTE, MPI_Win win), (a, n, t, rank, at, m, u, win), a,
     NULL, AT_WINDOW)
CALL(Accumulate, (const void *a, int n, MPI_Datatype t, REMOTE, MPI_Op op, MPI_Win win),
     (a, n, t, rank, at, m, u, op, win), a, NULL, AT_WINDOW)
CALL(Rput, (const void *a, int n, MPI_Datatype t, REMOTE, MPI_Win win, MPI_Request *request),
     (a, n, t, rank, at, m, u, win, request), a, NULL, AT_WINDOW)
CALL(Rget, (void *a, int n, MPI_Datatype t, REMOTE, MPI_Win win, MPI_Request *request),
     (a, n, t, rank, at, m, u, win, request), a, NULL, AT_WINDOW)
CALL(Raccumulate,
     (const void *a, int n, MPI_Datatype t, REMOTE, MPI_Op op, MPI_Win win, MPI_Request *request),
     (a, n, t, rank, at, m, u, op, win, request), a, NULL, AT_WINDOW)
#define FETCHED const void *a, int n, MPI_Datatype t, void *b, int o, MPI_Datatype v
CALL(Get_accumulate, (FETCHED, REMOTE, MPI_Op op, MPI_Win win),
     (a, n, t, b, o, v, rank, at, m, u, op, win), a, b, AT_WINDOW)
CALL(Rget_accumulate, (FETCHED, REMOTE, MPI_Op op, MPI_Win win, MPI_Request *request),
     (a, n, t, b, o, v, rank, at, m, u, op, win, request), a, b, AT_WINDOW)
CALL(Fetch_and_op,
     (const void *a, void *b, MPI_Datatype t, int rank, MPI_Aint at, MPI_Op op, MPI_Win win),
     (a, b, t, rank, at, op, win), a, b, AT_WINDOW)
CALL(Compare_and_swap,
     (const void *a, const void *c, void *b, MPI_Datatype t, int rank, MPI_Aint at, MPI_Win win),
     (a, c, b, t, rank, at, win), a, b, AT_WINDOW)

/* The forms in which a call reads or writes a file: BUFFER is the type of its pointer. */
#define FILE_CALL(NAME, BUFFER, LAST)                                                              \
    CALL(NAME, (MPI_File file, BUFFER a, int n, MPI_Datatype t, LAST last), (file, a, n, t, last), \
         a, NULL, AT_FILE)
#define FILE_CALL_AT(NAME, BUFFER, LAST)                                                   \
    CALL(NAME, (MPI_File file, MPI_Offset at, BUFFER a, int n, MPI_Datatype t, LAST last), \
         (file, at, a, n, t, last), a, NULL, AT_FILE)
typedef const void *sent;
typedef void *filled;
typedef MPI_Status *status;
typedef MPI_Request *request;
FILE_CALL(File_read, filled, status)
FILE_CALL(File_read_all, filled, status)
FILE_CALL(File_read_shared, filled, status)
FILE_CALL(File_read_ordered, filled, status)
FILE_CALL(File_write, sent, status)
FILE_CALL(File_write_all, sent, status)
FILE_CALL(File_write_shared, sent, status)
FILE_CALL(File_write_ordered, sent, status)
FILE_CALL(File_iread, filled, request)
FILE_CALL(File_iread_all, filled, request)
FILE_CALL(File_iread_shared, filled, request)
FILE_CALL(File_iwrite, sent, request)
FILE_CALL(File_iwrite_all, sent, request)
FILE_CALL(File_iwrite_shared, sent, request)
FILE_CALL_AT(File_read_at, filled, status)
FILE_CALL_AT(File_read_at_all, filled, status)
FILE_CALL_AT(File_write_at, sent, status)
FILE_CALL_AT(File_write_at_all, sent, status)
FILE_CALL_AT(File_iread_at, filled, request)
FILE_CALL_AT(File_iread_at_all, filled, request)
FILE_CALL_AT(File_iwrite_at, sent, request)
FILE_CALL_AT(File_iwrite_at_all, sent, request)
