#pragma once
// Algorithms of matrix products that measurements chose, cached from process to process. An algorithm
// is bytes that mean something only to the library and the GPU it was measured with.
//
//   AlgorithmCache cache(cache_folder(), "NVIDIA H200, driver 13000, cuBLASLt 130002");
//   if (const auto bytes = cache.find("512 768 2048 bf16"); !bytes.empty())
//     ...                                          // see that they fit
//   else
//     cache.add("512 768 2048 bf16", measured);
//   cache.save_when_due();                          // after each product: costs nothing most of the time
//
// A file for each library and GPU, text with a checksum, replaced as a whole. One that is damaged
// or of others, or a folder that cannot be written, is said in one line on stderr and only costs
// measurements. Processes that write at the same moment may lose what one of them measured.

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "runtime/base/clock.h"

namespace quintet {

class AlgorithmCache {
 public:
  /// `library` names all that an algorithm depends on besides the problem, in one line. An empty
  /// folder: nothing is read or written.
  AlgorithmCache(const std::filesystem::path& folder, std::string library);
  /// Saves what is not saved yet.
  ~AlgorithmCache();
  AlgorithmCache(const AlgorithmCache&) = delete;
  AlgorithmCache& operator=(const AlgorithmCache&) = delete;

  /// The algorithm's bytes; empty if there is none. `problem` is one line.
  std::string find(const std::string& problem) const;
  void add(const std::string& problem, std::string_view bytes);
  /// Saves if something was added and a second has passed since the last time.
  void save_when_due();

  const std::filesystem::path& file() const { return file_; }

 private:
  using Entries = std::map<std::string, std::string>;
  Entries load() const;
  void save();

  std::filesystem::path file_;
  std::string library_;
  Entries entries_;
  bool dirty_ = false;
  Clock::time_point saved_ = Clock::now();
};

}  // namespace quintet
