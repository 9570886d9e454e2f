#pragma once
// As much of NCCL as collectives_nccl.cpp uses, between threads of one process. As in
// NCCL collectives run in streams; a rank that does not come is waited for. A library to be loaded:
// a program that calls one of these itself does not link.
// NOLINTBEGIN(readability-identifier-naming): the names are NVIDIA's

#include "cuda_runtime_api.h"

enum ncclResult_t {
  ncclSuccess = 0,
  ncclSystemError = 2,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};
enum ncclDataType_t {
  ncclInt8,
  ncclUint8,
  ncclInt32,
  ncclUint32,
  ncclInt64,
  ncclFloat16,
  ncclFloat32,
  ncclFloat64,
  ncclBfloat16
};
enum ncclRedOp_t { ncclSum, ncclMax };
struct ncclUniqueId {
  char internal[128];
};
struct FakeNccl;
using ncclComm_t = FakeNccl*;
struct ncclConfig_t {
  int blocking, splitShare;
};
#define NCCL_CONFIG_INITIALIZER \
  { 1, 0 }

extern "C" {
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclMemAlloc(void** block, size_t bytes);
ncclResult_t ncclMemFree(void* block);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part,
                           ncclConfig_t* config);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int to, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int from, ncclComm_t comm,
                      cudaStream_t stream);
}

/// What is wrong with it.
enum class FakeFault {
  none,
  link,          // every communicator reports an error, as after a link went down
  init_fails,    // communicators that are being made do
  init_hangs,    // making one never ends
  no_memory,     // NCCL allocates none
  launch_blocks  // all-reduces do not return from their launch while this lasts
};
extern "C" {
void set_fake_fault(FakeFault fault);
/// Communicators made by a split that share with the whole, and those aborted, since the program started.
int fake_splits();
/// Blocks that NCCL allocated and nobody freed.
int fake_blocks();
int fake_aborts();
/// Ranks that wait for others go on, as if the others' processes had ended theirs.
void release_fake_ranks();
}
// NOLINTEND(readability-identifier-naming)
