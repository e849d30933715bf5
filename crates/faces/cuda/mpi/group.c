/* Collective calls that consist of messages between two ranks. Decision 48 has the reasons.
 *
 * The messages go over the communicator of the library, with a tag for each communicator of the
 * program. Only the library posts receives there, and each of them names its source and its tag. So
 * the messages take the path as those of the program do. */
#include "path.h"

#include <stdlib.h>

/* One message. */
struct pm_member {
    MPI_Request request;
    MPI_Count bytes; /* of a receive, or -1 */
    void *aside;     /* memory of the host for a message that has no other place */
};

int pm_group_moves(MPI_Comm comm, MPI_Count bytes) {
    const struct pm_comm *known = pm_comm_of(comm);
    return known != NULL && known->tag != 0 && known->size > 1 && bytes >= 0 &&
           (size_t)bytes >= pm_group_bytes_min;
}

int pm_group_begin(struct pm_group *group, MPI_Comm comm, int room) {
    group->comm = comm;
    group->known = pm_comm_of(comm);
    group->members = calloc((size_t)room + 1, sizeof *group->members);
    group->used = 0;
    group->code = MPI_SUCCESS;
    return group->members != NULL;
}

int pm_group_agree(struct pm_group *group, MPI_Comm comm, MPI_Count bytes, int room, int wants) {
    int all = 0;
    if (!pm_group_moves(comm, bytes)) return 0;
    /* Without memory for the call, this rank keeps the others from beginning it. */
    if (!pm_group_begin(group, comm, room)) wants = 0;
    if (PMPI_Allreduce(&wants, &all, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS && all) return 1;
    free(group->members);
    return 0;
}

static void note(struct pm_group *group, int code) {
    if (group->code == MPI_SUCCESS) group->code = code;
}

static struct pm_message message(const struct pm_group *group, int rank, const void *buffer,
                                 int count, MPI_Datatype type) {
    struct pm_message made = {.buffer = buffer, .count = count, .type = type};
    made.partner = group->known->world[rank];
    made.tag = group->known->tag;
    made.comm = pm_control();
    made.function = group->function;
    return made;
}

void pm_group_receive(struct pm_group *group, int from, void *buffer, int count,
                      MPI_Datatype type) {
    struct pm_member *it = &group->members[group->used++];
    struct pm_message in = message(group, from, buffer, count, type);
    MPI_Count size = 0;
    PMPI_Type_size_x(type, &size);
    it->bytes = size * count;
    int code = pm_irecv(&in, &it->request);
    if (code == MPI_SUCCESS) return;
    note(group, code);
    /* The sender would otherwise wait for ever. */
    it->request = MPI_REQUEST_NULL;
    it->aside = it->bytes <= INT32_MAX ? malloc((size_t)it->bytes + 1) : NULL;
    if (it->aside == NULL) return;
    in = message(group, from, it->aside, (int)it->bytes, MPI_BYTE);
    if (pm_irecv(&in, &it->request) != MPI_SUCCESS) it->request = MPI_REQUEST_NULL;
}

void pm_group_send(struct pm_group *group, int to, const void *buffer, int count,
                   MPI_Datatype type) {
    struct pm_member *it = &group->members[group->used++];
    struct pm_message out = message(group, to, buffer, count, type);
    it->bytes = -1;
    int code = pm_isend(&out, PMPI_Isend, 1, &it->request);
    if (code == MPI_SUCCESS) return;
    it->request = MPI_REQUEST_NULL;
    note(group, code);
}

void pm_group_copy(struct pm_group *group, void *to, const void *from, MPI_Count bytes) {
    const char *error = pm_copy_on_device((uintptr_t)to, (uintptr_t)from, (size_t)bytes);
    if (error != NULL)
        note(group, pm_code(MPI_ERR_OTHER, group->function, "a copy within the device failed"));
}

/* Returns the code of a message that has ended. */
static int check(const struct pm_group *group, const struct pm_member *it, int code,
                 const MPI_Status *status) {
    MPI_Count bytes = 0;
    if (code != MPI_SUCCESS || it->bytes < 0) return code;
    if (PMPI_Get_elements_x(status, MPI_BYTE, &bytes) == MPI_SUCCESS && bytes == it->bytes)
        return MPI_SUCCESS;
    return pm_code(MPI_ERR_OTHER, group->function,
                   "another rank could not fetch its bytes from a device, or has another number of "
                   "them");
}

int pm_group_wait(struct pm_group *group) {
    for (int i = 0; i < group->used; i++) {
        struct pm_member *it = &group->members[i];
        MPI_Status status;
        if (it->request != MPI_REQUEST_NULL) {
            int code = pm_wait(&it->request, &status);
            note(group, check(group, it, code, &status));
        }
        free(it->aside);
    }
    group->used = 0;
    return group->code;
}

int pm_group_end(struct pm_group *group) {
    pm_group_wait(group);
    free(group->members);
    if (group->code != MPI_SUCCESS) PMPI_Comm_call_errhandler(group->comm, group->code);
    return group->code;
}
