// An MPI program without Python:  barrier
//
// Rank 3 does not enter the barrier. Every rank makes /mnt/barrier-<rank> right before it stands still.

#include <fstream>
#include <string>

#include <mpi.h>
#include <unistd.h>

int main(int argc, char** argv) {
    int rank = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::ofstream("/mnt/barrier-" + std::to_string(rank)).close();
    if (rank == 3) pause();
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Finalize();
}
