#pragma once
// manifest.ocdbt: how the store was made and where the root of its newest version lies.
//
//   const Manifest manifest = read_manifest(files);
//   manifest.root->file->path;   // "d/277ca567c220a9336f0b54a6c2cee12c"

#include <optional>

#include "checkpoint/ocdbt/encoding.h"
#include "checkpoint/ocdbt/files.h"

namespace quintet::ocdbt {

inline constexpr const char* kManifestName = "manifest.ocdbt";

struct Manifest {
  size_t max_node_bytes = 0;  // of a decoded node of the tree
  uint64_t generation = 0;
  std::vector<DataFile> data_files;
  int root_height = 0;
  std::optional<Location> root;  // of the newest version; none: the store is empty
};

/// Of manifest.ocdbt, or of the newest manifest.<generation> where there are several. Throws
/// ExitCode::kData naming the file and the byte.
Manifest read_manifest(Files& files);

}  // namespace quintet::ocdbt
