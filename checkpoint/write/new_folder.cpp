#include "checkpoint/write/new_folder.h"

#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

/// "a/b/" and "a/b" alike.
fs::path without_slash(const fs::path& path) {
  return (fs::absolute(path) / "").lexically_normal().parent_path();
}

void check_is_free(const fs::path& target) {
  QT_CHECK(!is_there(target) || (fs::is_directory(target) && names_in(target).empty()),
           "{}: there is something already; name a folder that is not there, or an empty one",
           target.string());
}

}  // namespace

fs::path NewFolder::prepared_path(const fs::path& target) {
  const fs::path path = without_slash(target);
  return path.parent_path() / (".tmp-" + path.filename().string());
}

NewFolder::NewFolder(fs::path target) : target_(without_slash(target)) {
  check_is_free(target_);
  lock_.emplace(target_.parent_path(), prepared().filename().string() + ".lock");
  remove_tree(prepared());
  make_folder(prepared());
}

NewFolder::~NewFolder() {
  if (committed_) return;
  try {
    remove_tree(prepared());
  } catch (const Error&) {  // the error that brought us here is the one to report
  }
}

void NewFolder::commit() {
  sync_file_system(prepared());
  check_is_free(target_);
  rename_path(prepared(), target_);
  committed_ = true;
  sync_folder(target_.parent_path());
}

void write_new_file(const fs::path& path, std::string_view text) {
  File file = File::create_new(path);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.close_checked();
}

}  // namespace quintet
