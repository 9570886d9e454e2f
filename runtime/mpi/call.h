#pragma once
// The one way to call MPI: what it returns is checked.
//
//   QT_MPI(MPI_Isend(data, count, MPI_BYTE, to, tag, comm, &request));

#define OMPI_SKIP_MPICXX 1  // the C interface alone
#include <mpi.h>

namespace quintet::mpi {

/// Throws Error(kPeer) with the call and MPI's own text unless `code` is MPI_SUCCESS.
void check(int code, const char* call);

}  // namespace quintet::mpi

#define QT_MPI(call) ::quintet::mpi::check((call), #call)
