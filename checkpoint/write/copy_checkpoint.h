#pragma once
// Writes the tensors of one checkpoint as another, in any format, one tensor in memory at a time, by any
// number of hosts together, and reads them back.
//
//   const StoredTensors tensors = tensors_for(*from, format, DType::bf16);
//   copy_checkpoint(*from, format, {.folder = folder, .tensors = tensors}, hosts);

#include <functional>

#include "checkpoint/write/formats.h"

namespace quintet {

/// What of a checkpoint a format holds; parameters as `dtype` if there is one. Throws ExitCode::kData
/// naming a parameter that is no floating-point number where one is asked for.
StoredTensors tensors_for(const CheckpointReader& from, const WriteFormat& format,
                          std::optional<DType> dtype);

using CopyProgress = std::function<void(const char* what, int64_t bytes)>;

/// Writes request.tensors, read from `from`, to request.folder. This host's share is chosen here. All
/// hosts call it, with the same arguments; `progress` is told the bytes that this host has written ("convert"),
/// then those that it has read back ("read back"). Files are durable when it returns.
/// Throws ExitCode::kDisk for what cannot be written or does not read back as it was written,
/// ExitCode::kData naming a parameter whose numbers the dtype cannot hold. Needs memory for one tensor in
/// its old and new form.
void copy_checkpoint(const CheckpointReader& from, const WriteFormat& format, WriteRequest request,
                     HostGroup& hosts, const CopyProgress& progress = {});

/// The tensors that host `host` of `hosts` copies: the largest first, each to who has the fewest bytes.
std::vector<std::string> share_of(const StoredTensors& tensors, int host, int hosts);

}  // namespace quintet
