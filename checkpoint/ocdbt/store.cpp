#include "checkpoint/ocdbt/store.h"

#include <set>

#include "checkpoint/ocdbt/btree.h"
#include "checkpoint/ocdbt/manifest.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"

namespace quintet::ocdbt {

/// Follows the tree from its root. A subtree may hang from several nodes, so that few bytes may describe
/// endless keys: what they become is limited by what they are.
class Store::Walk {
 public:
  Walk(Store& store, size_t max_node_bytes) : store_(store), max_node_bytes_(max_node_bytes) {}

  void node(const Location& at, int height, const std::string& prefix,
            const std::string& lowest_key) {
    const std::string where =
        fmt::format("{}: node at byte {}", store_.files_->where(at.file->path), at.offset);
    const auto encoded = bytes_of(at, where);
    if (seen_.insert({at.file->path, at.offset}).second) allowed_ += kGrowth * encoded.size();
    // Nodes are a little larger than the largest that the writer aims at.
    const size_t limit = std::min(max_node_bytes_ + max_node_bytes_ / 2 + (1 << 20), allowed_);
    const BtreeNode node = read_btree_node(encoded, prefix, at.file->base, limit, where);
    spend(encoded.size() + node.body.size(), where);
    store_.files_->release(encoded);
    QT_CHECK_AS(ExitCode::kData, node.height == height && node.entries.front().key >= lowest_key,
                "{}: is of height {} and begins with key '{}', expected height {} and '{}'; the "
                "file is damaged",
                where, node.height, node.entries.front().key, height, lowest_key);
    for (const BtreeEntry& entry : node.entries) {
      spend(sizeof(BtreeEntry) + entry.key.size(), where);
      if (height == 0)
        value(entry, where);
      else
        this->node(entry.location, height - 1, entry.key.substr(0, entry.prefix), entry.key);
    }
  }

 private:
  static constexpr size_t kGrowth = 100, kAlways = 4 << 20;

  void spend(size_t bytes, const std::string& where) {
    QT_CHECK_AS(ExitCode::kData, bytes <= allowed_,
                "{}: the tree says more than {} times what it is made of; the file is damaged",
                where, kGrowth);
    allowed_ -= bytes;
  }

  std::span<const std::byte> bytes_of(const Location& at, const std::string& where) {
    const auto file = store_.files_->bytes(at.file->path);
    QT_CHECK_AS(ExitCode::kData, at.length <= file.size() && at.offset <= file.size() - at.length,
                "{}: {} bytes from byte {} end outside of the file of {}; it is cut short", where,
                at.length, at.offset, file.size());
    return file.subspan(at.offset, at.length);
  }

  void value(const BtreeEntry& entry, const std::string& where) {
    std::span<const std::byte> bytes;
    if (entry.location.file != nullptr) {
      bytes = bytes_of(entry.location, fmt::format("{}: key '{}' in {}", where, entry.key,
                                                   entry.location.file->path));
    } else {
      spend(entry.value.size(), where);
      const std::string& value = store_.inline_values_.emplace_back(entry.value);
      bytes = std::as_bytes(std::span(value.data(), value.size()));
    }
    const auto& values = store_.values_;
    QT_CHECK_AS(ExitCode::kData, values.empty() || values.rbegin()->first < entry.key,
                "{}: key '{}' comes after '{}'; the file is damaged", where, entry.key,
                values.rbegin()->first);
    store_.values_.emplace_hint(store_.values_.end(), entry.key, bytes);
  }

  Store& store_;
  const size_t max_node_bytes_;
  size_t allowed_ = kAlways;
  std::set<std::pair<std::string, uint64_t>> seen_;
};

bool Store::is_in(const std::filesystem::path& folder) { return is_there(folder / kManifestName); }

Store::Store(std::unique_ptr<Files> files) : files_(std::move(files)) {
  const Manifest manifest = read_manifest(*files_);
  generation_ = manifest.generation;
  if (manifest.root)
    Walk(*this, manifest.max_node_bytes).node(*manifest.root, manifest.root_height, "", "");
}

}  // namespace quintet::ocdbt
