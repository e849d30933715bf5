/* A model of a molecular dynamics program on many nodes, for SimGrid's SMPI.
 *
 *   steps STEPS ATOMS FILE SEED     prints the simulated seconds of all steps
 *
 * Each rank has a box of ATOMS atoms and one device. A step exchanges the atoms near the six faces
 * with the neighbours, and then computes as long as one step of a recorded run of LAMMPS took (FILE
 * has the seconds of consecutive steps, one in a line). Each rank begins at another place of the
 * record, so that a slow step of one rank meets ordinary steps of the others, and the neighbours
 * wait for it. Only the exchange and the waiting are simulated.
 */
#include <math.h>
#include <mpi.h>
#include <smpi/smpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* LAMMPS makes new lists of neighbours in all ranks at the same steps (`neigh_modify every 20`). So
 * each rank begins at a multiple of this number, where the record has such a step, too. */
#define NEW_LISTS_EVERY 20
/* Atoms per volume of the LJ benchmark, and the range of an atom (cut-off 2.5 and skin 0.3), both
 * in units of the potential. */
#define DENSITY 0.8442
#define RANGE 2.8
/* A step sends the positions of atoms; new lists also need tag, type and mask. */
#define BYTES_OF_POSITION 24
#define BYTES_OF_ATOM 48
/* LAMMPS sums up six values of the thermodynamic output at each 100th step. */
#define SUM_EVERY 100
#define SUMMED 6

/* An xorshift generator: the model gives the same time on every machine. */
static uint64_t draw(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Reads the record. Returns the number of its steps. */
static int read_record(const char *path, double **record) {
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    int count = 0, room = 0;
    double seconds;
    *record = NULL;
    while (fscanf(file, "%lf", &seconds) == 1) {
        if (count == room) {
            room = room ? 2 * room : 1024;
            double *larger = realloc(*record, room * sizeof **record);
            if (!larger) break;
            *record = larger;
        }
        (*record)[count++] = seconds;
    }
    fclose(file);
    return count;
}

/* Exchanges the atoms near the faces, one dimension after the other. Those that came from the
 * dimensions before are sent on, so edges and corners need no messages of their own. */
static void exchange(MPI_Comm grid, const int *ranks, double edge, double bytes, char *buffer,
                     int size) {
    double sides[3] = {edge, edge, edge};
    for (int dimension = 0; dimension < 3; dimension++) {
        double area = 1;
        for (int other = 0; other < 3; other++) {
            if (other != dimension) area *= sides[other];
        }
        sides[dimension] += 2 * RANGE;
        if (ranks[dimension] == 1) continue;
        const int length = (int)fmin(DENSITY * area * RANGE * bytes, size);
        for (int direction = -1; direction <= 1; direction += 2) {
            int from, to;
            MPI_Cart_shift(grid, dimension, direction, &from, &to);
            MPI_Sendrecv(buffer, length, MPI_BYTE, to, dimension, buffer + size, length, MPI_BYTE,
                         from, dimension, grid, MPI_STATUS_IGNORE);
        }
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    double *record = NULL;
    const int steps = argc == 5 ? atoi(argv[1]) : 0, atoms = argc == 5 ? atoi(argv[2]) : 0;
    const int recorded = steps > 0 && atoms > 0 ? read_record(argv[3], &record) : 0;
    if (recorded < steps + NEW_LISTS_EVERY) {
        fprintf(stderr, "steps STEPS ATOMS FILE SEED; FILE needs at least STEPS + %d steps\n",
                NEW_LISTS_EVERY);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int rank, count, ranks[3] = {0, 0, 0}, periodic[3] = {1, 1, 1};
    MPI_Comm grid;
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    MPI_Dims_create(count, 3, ranks);
    MPI_Cart_create(MPI_COMM_WORLD, 3, ranks, periodic, 0, &grid);
    MPI_Comm_rank(grid, &rank);

    uint64_t state = 0x9E3779B97F4A7C15u * (uint64_t)(rank + 1) ^ strtoull(argv[4], NULL, 10);
    for (int i = 0; i < 16; i++) draw(&state);
    const int places = (recorded - steps) / NEW_LISTS_EVERY;
    const int first = (int)(draw(&state) % (uint64_t)(places + 1)) * NEW_LISTS_EVERY;
    const double edge = cbrt(atoms / DENSITY);
    /* The largest message: a face with the atoms of both dimensions before, and all of an atom. */
    const int size =
        (int)(DENSITY * (edge + 2 * RANGE) * (edge + 2 * RANGE) * RANGE * BYTES_OF_ATOM) + 1;
    char *buffer = malloc(2 * (size_t)size);
    double sums[SUMMED] = {0}, results[SUMMED];

    MPI_Barrier(grid);
    const double begin = MPI_Wtime();
    for (int step = 0; step < steps; step++) {
        const int bytes = step % NEW_LISTS_EVERY ? BYTES_OF_POSITION : BYTES_OF_ATOM;
        exchange(grid, ranks, edge, bytes, buffer, size);
        smpi_execute(record[first + step]);
        if (step % SUM_EVERY == 0) MPI_Allreduce(sums, results, SUMMED, MPI_DOUBLE, MPI_SUM, grid);
    }
    MPI_Barrier(grid);
    if (rank == 0) printf("%.9f\n", MPI_Wtime() - begin);
    free(buffer);
    free(record);
    MPI_Finalize();
    return 0;
}
