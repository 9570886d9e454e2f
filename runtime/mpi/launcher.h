#pragma once
// mpirun that is asked to end (SIGTERM, Ctrl-C) passes that on to its ranks, and kills them a second
// later (Open MPI 5: 0.2 s), whether they have saved or not. A rank can stop it meanwhile.
//
//   if (hold_launcher(sender)) ...   // of the signal
//   release_launcher();              // everything is saved

#include <sys/types.h>

namespace quintet::mpi {

/// Stops (SIGSTOP) the process that sent a signal, if it is Open MPI's and started all ranks of this
/// job. False, and nothing is done, if it is another, if someone said how long it is to wait
/// (odls_base_sigkill_timeout, of Open MPI 4), or if a rank is gone, so that the others cannot save and are told to
/// end for that. It goes on (SIGCONT) after release_launcher() of any of its ranks, and when one of
/// them ends, however. Not for signal handlers.
bool hold_launcher(pid_t sender);
/// Open MPI cannot end a job while its launcher stands still: call it before MPI ends.
void release_launcher();

/// This process is no rank, although its environment, that of one which started it, says so. Before any Session.
void leave_job();

}  // namespace quintet::mpi
