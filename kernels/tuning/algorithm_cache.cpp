#include "kernels/tuning/algorithm_cache.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>

#include "runtime/base/check.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/crc32c.h"

namespace quintet {
namespace {

constexpr std::string_view kTitle = "quintet algorithms of matrix products, format 1";

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

/// Throws Error for what hex() does not write.
std::string bytes_of(std::string_view hex) {
  std::string bytes;
  for (size_t at = 0; at < hex.size(); at += 2) {
    unsigned value = 0;
    const char* const end = hex.data() + std::min(at + 2, hex.size());
    QT_CHECK_AS(
        ExitCode::kData,
        std::from_chars(hex.data() + at, end, value, 16).ptr == end && end == hex.data() + at + 2,
        "is damaged");
    bytes += static_cast<char>(value);
  }
  return bytes;
}

/// Takes the next line, without its end, off `text`.
std::string_view next_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

std::string checksum(std::string_view text) { return fmt::format("crc32c {:08x}\n", crc32c(text)); }

}  // namespace

AlgorithmCache::AlgorithmCache(const std::filesystem::path& folder, std::string library)
    : library_(std::move(library)) {
  if (folder.empty()) return;
  file_ = folder / fmt::format("algorithms_{:08x}.txt", crc32c(library_));
  entries_ = load();
}

AlgorithmCache::~AlgorithmCache() { save(); }

std::string AlgorithmCache::find(const std::string& problem) const {
  const auto found = entries_.find(problem);
  return found == entries_.end() ? "" : found->second;
}

void AlgorithmCache::add(const std::string& problem, std::string_view bytes) {
  entries_[problem] = bytes;
  dirty_ = true;
}

void AlgorithmCache::save_when_due() {
  if (dirty_ && Clock::now() - saved_ > std::chrono::seconds(1)) save();
}

/// What the file has; nothing, and a line on stderr, if it is not ours.
AlgorithmCache::Entries AlgorithmCache::load() const {
  std::ifstream in(file_, std::ios::binary);
  if (!in) return {};
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  try {
    const size_t size = text.size() - std::min(text.size(), checksum("").size());
    std::string_view rest = std::string_view(text).substr(0, size);
    QT_CHECK_AS(ExitCode::kData, text.substr(size) == checksum(rest) && next_line(rest) == kTitle,
                "is damaged");
    const std::string_view library = next_line(rest);
    QT_CHECK_AS(ExitCode::kData, library == library_, "is of {}, not of {}", library, library_);
    Entries entries;
    while (!rest.empty()) {
      const std::string_view line = next_line(rest);
      const size_t space = std::min(line.rfind(' '), line.size());
      entries[std::string(line.substr(0, space))] =
          bytes_of(line.substr(std::min(space + 1, line.size())));
    }
    return entries;
  } catch (const Error& error) {
    fmt::print(stderr, "{} {}; algorithms of matrix products are measured again\n", file_.string(),
               error.what());
    return {};
  }
}

void AlgorithmCache::save() {
  if (!dirty_ || file_.empty()) return;
  dirty_ = false;
  saved_ = Clock::now();
  try {
    entries_.merge(load());  // what other processes found meanwhile
    std::string text = fmt::format("{}\n{}\n", kTitle, library_);
    for (const auto& [problem, bytes] : entries_)
      text += fmt::format("{} {}\n", problem, hex(bytes));
    make_folders(file_.parent_path());
    atomic_write_file(file_, text + checksum(text));
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}; algorithms of matrix products are not cached\n", error.what());
    file_.clear();
  }
}

}  // namespace quintet
