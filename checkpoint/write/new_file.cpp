#include "checkpoint/write/new_file.h"

#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {
namespace {

void check_nothing_at(const std::filesystem::path& target) {
  QT_CHECK(!is_there(target), "{}: there is something already; name a file that is not there",
           target.string());
}

}  // namespace

NewFile::NewFile(std::filesystem::path target) : target_(std::filesystem::absolute(target)) {
  QT_CHECK(target_.has_filename(), "{}: names a folder; expected a file", target_.string());
  check_nothing_at(target_);
  lock_.emplace(target_.parent_path(), prepared().filename().string() + ".lock");
  remove_tree(prepared());
}

NewFile::~NewFile() {
  try {
    remove_tree(prepared());
  } catch (const Error&) {  // the error that brought us here is the one to report
  }
}

std::filesystem::path NewFile::prepared() const {
  return target_.parent_path() / (".tmp-" + target_.filename().string());
}

void NewFile::commit() {
  check_nothing_at(target_);
  rename_path(prepared(), target_);
  sync_folder(target_.parent_path());
}

}  // namespace quintet
