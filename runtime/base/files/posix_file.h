#pragma once
// Files by descriptor, each call checked: errors are ExitCode::kDisk with the path, the system's
// reason and, where space is the reason, the bytes needed and free.
//
//   File file = File::create_new(folder / "data");
//   file.write_at(0, bytes);
//   file.sync();
//   sync_folder(folder);

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace quintet {

/// Throws ExitCode::kDisk: "PATH: cannot ACTION: REASON", with needed and free bytes if
/// `bytes_needed` >= 0, and advice for the errors that have one.
[[noreturn]] void fail_disk(const std::filesystem::path& path, const std::string& action, int error,
                            int64_t bytes_needed = -1);

/// Bytes an ordinary process may still write where `path` (or its nearest parent) lies; -1: unknown.
int64_t free_bytes(const std::filesystem::path& path);

class File {
 public:
  File() = default;
  ~File() { close(); }
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  /// A new file; an existing one is an error.
  static File create_new(const std::filesystem::path& path);
  /// A regular file to read. One that is not there, a link or something else throws
  /// ExitCode::kData; one that is there and cannot be opened is the disk's fault.
  static File open_read(const std::filesystem::path& path);
  /// A file that is there, to be synced.
  static File open_write(const std::filesystem::path& path);

  int descriptor() const { return descriptor_; }
  const std::filesystem::path& path() const { return path_; }
  int64_t size() const;
  /// Writes all bytes at an offset, whatever the system cuts the calls into.
  void write_at(int64_t offset, std::span<const std::byte> bytes);
  /// Fills `bytes` from an offset; a file that ends before throws ExitCode::kData.
  void read_at(int64_t offset, std::span<std::byte> bytes) const;
  /// As reserve_space below.
  void reserve(int64_t bytes);
  /// Gives back what was reserved and not written.
  void trim();
  void sync();
  /// Closes and reports an error that only shows then (quota on NFS).
  void close_checked();

 private:
  File(int descriptor, std::filesystem::path path)
      : descriptor_(descriptor), path_(std::move(path)) {}
  void close();
  int descriptor_ = -1;
  std::filesystem::path path_;
};

/// Reserves space in an open file, so that later writes cannot run out of it; its size stays. A file
/// system that cannot reserve is no error: writing will tell.
void reserve_space(int descriptor, const std::filesystem::path& path, int64_t bytes);
/// Has the system begin to bring what was written to the disk; sync() then has less to wait for.
void start_writing_out(int descriptor);
/// True if there is anything of this name, a dangling link too.
bool is_there(const std::filesystem::path& path);
/// Names in a folder, sorted; throws ExitCode::kDisk if it cannot be listed.
std::vector<std::string> names_in(const std::filesystem::path& folder);
/// Makes names in the folder durable.
void sync_folder(const std::filesystem::path& folder);
/// Makes everything that was written to the folder's file system durable, in one go: many files take a flush
/// of the disk, not one each.
void sync_file_system(const std::filesystem::path& folder);
/// rename(2).
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
/// mkdir(2); an existing folder is an error.
void make_folder(const std::filesystem::path& folder);
/// Creates the folder and its parents where missing; throws ExitCode::kDisk.
void make_folders(const std::filesystem::path& folder);
/// Removes a file or a whole folder, following no links; what is not there is no error.
void remove_tree(const std::filesystem::path& path);

}  // namespace quintet
