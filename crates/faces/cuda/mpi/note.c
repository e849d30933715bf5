/* Messages between the libraries of two ranks, on a communicator that only the library has. */
#include "path.h"

#include <stdlib.h>
#include <time.h>

enum { NOTE_TAG = 1 };

/* Notes that have not left yet. MPI sends messages of this size at once, so more of them mean that
 * something is wrong. */
enum { LEAVING_MAX = 256 };

static struct leaving {
    struct pm_note *note;
    MPI_Request request;
} leaving[LEAVING_MAX];
static int number;

/* Frees the notes that have left. */
static void clean(void) {
    for (int i = 0; i < number;) {
        int has_left = 0;
        if (PMPI_Test(&leaving[i].request, &has_left, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
            !has_left) {
            i++;
            continue;
        }
        free(leaving[i].note);
        leaving[i] = leaving[--number];
    }
}

int pm_note_send(int world_rank, const struct pm_note *note) {
    if (number > LEAVING_MAX / 2) clean();
    if (number == LEAVING_MAX) return 0;
    struct pm_note *kept = malloc(sizeof *kept);
    if (kept == NULL) return 0;
    *kept = *note;
    MPI_Request request;
    if (PMPI_Isend(kept, sizeof *kept, MPI_BYTE, world_rank, NOTE_TAG, pm_control(), &request) !=
        MPI_SUCCESS) {
        free(kept);
        return 0;
    }
    leaving[number++] = (struct leaving){kept, request};
    return 1;
}

void pm_notes_read(void) {
    for (;;) {
        MPI_Status status;
        struct pm_note note;
        int has_come = 0, bytes = 0;
        if (PMPI_Iprobe(MPI_ANY_SOURCE, NOTE_TAG, pm_control(), &has_come, &status) !=
                MPI_SUCCESS ||
            !has_come)
            return;
        int code = PMPI_Recv(&note, sizeof note, MPI_BYTE, status.MPI_SOURCE, NOTE_TAG,
                             pm_control(), &status);
        if (code != MPI_SUCCESS) return;
        PMPI_Get_count(&status, MPI_BYTE, &bytes);
        if (bytes != (int)sizeof note) continue;
        if (note.kind == PM_NOTE_TAKEN)
            pm_offer_acknowledged(status.MPI_SOURCE, note.taken);
        else
            pm_claim_note(status.MPI_SOURCE, &note);
    }
}

void pm_notes_finish(void) {
    const struct timespec pause = {0, 1000000};
    for (int i = 0; i < 1000 && number > 0; i++) {
        clean();
        if (number > 0) nanosleep(&pause, NULL);
    }
}
