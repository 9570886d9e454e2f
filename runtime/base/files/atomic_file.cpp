#include "runtime/base/files/atomic_file.h"

#include <unistd.h>

#include <atomic>

#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {
namespace {

std::string temporary_prefix(const std::filesystem::path& file) {
  return fmt::format(".{}.tmp-", file.filename().string());
}

/// Beside the target (rename works within one file system only), its own for every call.
std::filesystem::path temporary_beside(const std::filesystem::path& file) {
  static std::atomic<int> calls{0};
  return file.parent_path() / fmt::format("{}{}-{}", temporary_prefix(file), ::getpid(), calls++);
}

std::filesystem::path folder_of(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : ".";
}

}  // namespace

void check_replaceable(const std::filesystem::path& file) {
  std::error_code error;
  const auto type = std::filesystem::status(file, error).type();
  using enum std::filesystem::file_type;
  QT_CHECK_AS(ExitCode::kDisk,
              type == regular || type == directory || type == not_found || type == none,
              "{}: is there and is no ordinary file; name another one", file.string());
}

void atomic_write_file(const std::filesystem::path& file,
                       std::span<const std::span<const std::byte>> pieces) {
  check_replaceable(file);
  const std::filesystem::path temporary = temporary_beside(file);
  int64_t total = 0, at = 0;
  for (const auto& piece : pieces) total += static_cast<int64_t>(piece.size());
  File out = File::create_new(temporary);
  try {
    out.reserve(total);
    for (const auto& piece : pieces) {
      out.write_at(at, piece);
      at += static_cast<int64_t>(piece.size());
    }
    out.sync();
    out.close_checked();
    rename_path(temporary, file);
  } catch (const Error&) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder_of(file));
}

void atomic_write_file(const std::filesystem::path& file, std::string_view text) {
  const std::span<const std::byte> piece = std::as_bytes(std::span(text.data(), text.size()));
  atomic_write_file(file, std::span(&piece, 1));
}

void check_writable(const std::filesystem::path& folder, const std::string& owner) {
  const std::filesystem::path probe = folder / (".writable-" + owner);
  const std::string temporary = temporary_prefix(probe);
  for (const std::string& name : names_in(folder))
    if (name.starts_with(temporary)) remove_tree(folder / name);
  try {
    atomic_write_file(probe, "a probe: can files be made here?\n");
    if (::unlink(probe.c_str()) != 0) fail_disk(probe, "remove", errno);
  } catch (const Error& error) {
    ::unlink(probe.c_str());
    fail(error.code(), "{}: no file can be made in this folder: {}", folder.string(), error.what());
  }
}

void remove_temporaries(const std::filesystem::path& folder) {
  for (const std::string& name : names_in(folder))
    if (name.starts_with(".writable-") ||
        (name.starts_with(".") && name.find(".tmp-") != std::string::npos))
      remove_tree(folder / name);
}

}  // namespace quintet
