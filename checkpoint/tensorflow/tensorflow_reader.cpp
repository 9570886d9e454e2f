#include "checkpoint/tensorflow/tensorflow_reader.h"

#include <cstring>
#include <limits>
#include <regex>

#include "checkpoint/tensorflow/mesh_names.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/files/read_file.h"

namespace quintet::tensorflow {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStep = "state/step";
constexpr std::string_view kIndex = ".index";

/// Whether PREFIX.index is there.
bool is_prefix(const fs::path& prefix) { return is_there(prefix.string() + std::string(kIndex)); }

/// What the file `checkpoint` of a folder calls the newest; empty: nothing, or one that is not there.
fs::path named_newest(const fs::path& folder) {
  if (!is_there(folder / "checkpoint")) return {};
  constexpr int64_t kLargest = 16 << 20;
  const std::string text = read_file(folder / "checkpoint", ExitCode::kData, kLargest);
  static const std::regex kNewest("(^|\n)model_checkpoint_path: \"([^\"\n]{1,4096})\"");
  std::smatch match;
  if (!std::regex_search(text, match, kNewest)) return {};
  // The path is that of the machine that wrote it: a folder that was moved has the files beside it.
  const fs::path prefix = folder / fs::path(match.str(2)).filename();
  return is_prefix(prefix) ? prefix : fs::path();
}

}  // namespace

fs::path find_prefix(const fs::path& path) {
  if (is_prefix(path)) return path;
  if (path.string().ends_with(kIndex))
    return path.string().substr(0, path.string().size() - kIndex.size());
  std::error_code error;
  QT_CHECK_AS(ExitCode::kData, fs::is_directory(path, error), "{}: there is no {}{}", path.string(),
              path.filename().string(), kIndex);
  if (const fs::path newest = named_newest(path); !newest.empty()) return newest;
  fs::path best;
  int64_t best_step = -1;
  static const std::regex kName("(.*?)(-([0-9]{1,18}))?\\.index");
  for (const std::string& name : names_in(path)) {
    std::smatch match;
    if (!std::regex_match(name, match, kName)) continue;
    const int64_t step = match[3].matched ? std::stoll(match.str(3)) : 0;
    if (step > best_step) best = path / name.substr(0, name.size() - kIndex.size());
    best_step = std::max(best_step, step);
  }
  QT_CHECK_AS(ExitCode::kData, !best.empty(), "{}: holds no file *{}", path.string(), kIndex);
  return best;
}

Reader::Reader(fs::path path)
    : CheckpointReader(std::move(path)), prefix_(find_prefix(folder_)), bundle_(prefix_) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : bundle_.tensors()) names.push_back(name);
  QT_CHECK_AS(ExitCode::kData, !names.empty(), "{}: holds no tensors", prefix_.string());
  for (const auto& [theirs, ours] : mesh_to_ours(names, prefix_.string())) {
    QT_CHECK_AS(ExitCode::kData, theirs_.emplace(ours, theirs).second,
                "{}: variables '{}' and '{}' are both {}", prefix_.string(), theirs_.at(ours),
                theirs, ours);
    const BundleTensor& tensor = bundle_.tensors().at(theirs);
    tensors_[ours] = {tensor.dtype, tensor.shape};
  }
  const auto step = tensors_.find(kStep);
  if (step == tensors_.end()) return;
  const bool is_integer = step->second.dtype == DType::i64 || step->second.dtype == DType::i32;
  QT_CHECK_AS(ExitCode::kData, is_integer && step->second.shape.empty(),
              "{}: global_step is {} of rank {}, expected an integer", prefix_.string(),
              name_of(step->second.dtype), step->second.shape.size());
  bundle_.read("global_step", {}, {}, reinterpret_cast<std::byte*>(&step_));
  QT_CHECK_AS(ExitCode::kData, step_ >= 0 && step_ <= std::numeric_limits<int32_t>::max(),
              "{}: global_step is {}, expected 0 to 2^31 - 1", prefix_.string(), step_);
  step->second.dtype = DType::i32;  // as T5X has it
}

std::vector<std::pair<std::string, std::string>> Reader::details() const {
  return {{"prefix", prefix_.filename().string()}, {"names", "T5 of Mesh TensorFlow"}};
}

NotFinite Reader::verify(int part, int parts) const {
  NotFinite not_finite;
  int64_t i = 0;
  for (const auto& [ours, theirs] : theirs_) {
    if (i++ % parts != part) continue;
    if (const int64_t count = bundle_.verify(theirs); count > 0) not_finite[ours] = count;
  }
  return not_finite;
}

void Reader::read_region(const TensorRegion& region, std::byte* target) const {
  if (region.name == kStep) {
    const auto step = static_cast<int32_t>(step_);
    std::memcpy(target, &step, sizeof step);
    return;
  }
  bundle_.read(theirs_.at(region.name), region.origin, region.sizes, target);
}

}  // namespace quintet::tensorflow
