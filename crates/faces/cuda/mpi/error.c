/* How the library reports what it cannot do. */
#include "pm.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Error classes that the library uses. */
static struct made {
    int error_class, code;
} made[] = {{MPI_ERR_TYPE, 0}, {MPI_ERR_NO_MEM, 0}, {MPI_ERR_OTHER, 0}, {MPI_ERR_BUFFER, 0}};

/* Makes a code of an error class with a text for MPI_Error_string. MPICH only keeps texts of
 * classes that the program has added. There, the class itself is the code. */
static int make_code(int error_class) {
    static const char text[] =
        "Penstock cannot use a buffer on a device; a line on standard error has the reason";
    char got[MPI_MAX_ERROR_STRING] = "";
    int code = error_class, length = 0;
    if (PMPI_Add_error_code(error_class, &code) == MPI_SUCCESS &&
        PMPI_Add_error_string(code, text) == MPI_SUCCESS &&
        PMPI_Error_string(code, got, &length) == MPI_SUCCESS && strcmp(got, text) == 0)
        return code;
    return error_class;
}

/* Returns the code of an error class. */
static int code_of(int error_class) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int code = error_class;
    pthread_mutex_lock(&lock);
    for (struct made *it = made; it < made + sizeof made / sizeof *made; it++) {
        if (it->error_class != error_class) continue;
        if (it->code == 0) it->code = make_code(error_class);
        code = it->code;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

int pm_code(int error_class, const char *function, const char *reason) {
    fprintf(stderr, "penstock: %s: %s\n", function, reason);
    return code_of(error_class);
}

int pm_raise(MPI_Comm comm, int error_class, const char *function, const char *reason) {
    int code = pm_code(error_class, function, reason);
    PMPI_Comm_call_errhandler(comm, code);
    return code;
}
