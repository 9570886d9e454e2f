#pragma once
// A node of an OCDBT store's B+tree.

#include "checkpoint/ocdbt/encoding.h"

namespace quintet::ocdbt {

/// Of a leaf, a key and its value; of another node, the lowest key of a child and where the child lies.
struct BtreeEntry {
  std::string key;  // in full
  Location location = {};
  std::string_view value = {};  // of a leaf, if it is inside of the node: then location has no file
  size_t prefix = 0;  // of another node: so many bytes of `key` begin every key of the child
};

struct BtreeNode {
  int height = 0;  // 0: a leaf
  Bytes body;      // which the values lie in
  std::vector<DataFile> data_files;
  std::vector<BtreeEntry> entries;
};

/// `prefix` begins its keys, `base` its files' paths. `limit`: of the bytes of the body, and again of all its
/// keys and paths together. Throws ExitCode::kData naming `where`: damage, keys that do not ascend.
BtreeNode read_btree_node(std::span<const std::byte> encoded, const std::string& prefix,
                          const std::string& base, size_t limit, const std::string& where);

}  // namespace quintet::ocdbt
