#include "checkpoint/commit.h"

#include <fcntl.h>
#include <stdio.h>

#include <cerrno>
#include <charconv>
#include <string_view>

#include "checkpoint/checkpoint.h"
#include "runtime/base/check.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"

namespace quintet {
namespace {

constexpr std::string_view kVisible = "checkpoint_";

std::filesystem::path trash_path(const std::filesystem::path& model_dir, int64_t step) {
  return model_dir / fmt::format(".trash-checkpoint_{}", step);
}

/// False: the file system cannot exchange names.
bool exchange(const std::filesystem::path& a, const std::filesystem::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
    fail_disk(a, fmt::format("exchange with {}", b.string()), errno);
  return false;
}

}  // namespace

std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kVisible)) return std::nullopt;
  const std::string_view digits = std::string_view(name).substr(kVisible.size());
  int64_t step = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  const bool canonical = !digits.empty() && digits[0] != '-' && (digits[0] != '0' || digits == "0");
  if (end.ec != std::errc() || end.ptr != digits.data() + digits.size() || !canonical)
    return std::nullopt;
  return step;
}

std::filesystem::path checkpoint_path(const std::filesystem::path& model_dir, int64_t step) {
  return model_dir / fmt::format("{}{}", kVisible, step);
}

std::filesystem::path temporary_path(const std::filesystem::path& model_dir, int64_t step) {
  return model_dir / fmt::format(".tmp-checkpoint_{}", step);
}

void publish(const std::filesystem::path& model_dir, int64_t step) {
  const auto temporary = temporary_path(model_dir, step), final = checkpoint_path(model_dir, step);
  const bool replaces = is_there(final);
  if (replaces && is_there(final / kPinnedName))
    atomic_write_file(temporary / kPinnedName, read_file(final / kPinnedName));
  if (!replaces) {
    rename_path(temporary, final);
  } else if (!exchange(temporary, final)) {
    trash(model_dir, step);
    rename_path(temporary, final);
  }
  sync_folder(model_dir);
  if (replaces) remove_tree(temporary);
}

void trash(const std::filesystem::path& model_dir, int64_t step) {
  const auto hidden = trash_path(model_dir, step);
  remove_tree(hidden);
  rename_path(checkpoint_path(model_dir, step), hidden);
  sync_folder(model_dir);
  remove_tree(hidden);
}

std::filesystem::path set_aside(const std::filesystem::path& model_dir, int64_t step) {
  std::filesystem::path aside = model_dir / fmt::format("damaged-checkpoint_{}", step);
  for (int i = 1; is_there(aside); ++i)
    aside = model_dir / fmt::format("damaged-checkpoint_{}.{}", step, i);
  rename_path(checkpoint_path(model_dir, step), aside);
  sync_folder(model_dir);
  return aside;
}

void remove_leftovers(const std::filesystem::path& model_dir) {
  remove_temporaries(model_dir);
  for (const std::string& name : names_in(model_dir))
    if (name.starts_with(".tmp-checkpoint_") || name.starts_with(".trash-checkpoint_"))
      remove_tree(model_dir / name);
}

}  // namespace quintet
