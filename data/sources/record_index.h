#pragma once
// Where the records of a file begin. Built by one pass over the file; that of a large file is cached
// in $QUINTET_INDEX_DIR (default ~/.cache/quintet/index) and mapped into memory the next time, for
// as long as the file's size and time of change are the same.
//
//   const RecordIndex index(file, "lines", [&](std::vector<int64_t>& starts) { ... });
//   const auto [begin, end] = index.extent(i);

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/sources/input_file.h"

namespace quintet::data {

class RecordIndex {
 public:
  struct Extent {
    int64_t begin, end;
  };
  /// `find` appends the offset of every record, rising. `kind` says which rule it follows: it is
  /// part of what a cached index is found by.
  RecordIndex(const InputFile& file, const std::string& kind,
              const std::function<void(std::vector<int64_t>&)>& find);
  int64_t size() const { return static_cast<int64_t>(starts_.size()); }
  /// From a record's first byte to that of the next one, or the end of the file.
  Extent extent(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    return {starts_[at], at + 1 < starts_.size() ? starts_[at + 1] : file_bytes_};
  }

  /// Files of at least this many bytes have their index cached.
  static constexpr int64_t kCachedFromBytes = int64_t{64} << 20;

 private:
  int64_t file_bytes_;
  std::shared_ptr<const void> owner_;  // of what starts_ looks at
  std::span<const int64_t> starts_;
};

}  // namespace quintet::data
