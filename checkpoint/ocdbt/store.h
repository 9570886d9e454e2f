#pragma once
// An OCDBT store, TensorStore's key-value store in a folder of few files: the keys of its newest version and
// their values, read in place. Reading follows the B+tree once, checks each node's CRC-32C, and keeps where
// the values lie. Values have no checksum of their own.
//
//   const Store store(std::make_unique<FolderFiles>(folder));
//   store.values().at("target.token_embedder.embedding/.zarray");

#include <deque>
#include <map>

#include "checkpoint/ocdbt/files.h"

namespace quintet::ocdbt {

class Store {
 public:
  /// Throws ExitCode::kData naming file and byte: a node or manifest that is damaged, keys that are out of
  /// order, a file that is missing or shorter than a value in it, a tree that is larger than the bytes it
  /// is made of allow.
  explicit Store(std::unique_ptr<Files> files);
  /// Whether there is one in a folder.
  static bool is_in(const std::filesystem::path& folder);

  const std::map<std::string, std::span<const std::byte>>& values() const { return values_; }
  const Files& files() const { return *files_; }
  /// Of its newest version.
  uint64_t generation() const { return generation_; }

 private:
  class Walk;
  std::unique_ptr<Files> files_;
  uint64_t generation_ = 0;
  std::map<std::string, std::span<const std::byte>> values_;
  std::deque<std::string> inline_values_;
};

}  // namespace quintet::ocdbt
