#include "data/sources/record_files.h"

#include "runtime/base/check.h"

namespace quintet::data {
namespace {

std::vector<int64_t> sizes_of(const std::vector<RecordFilePtr>& files) {
  std::vector<int64_t> sizes;
  for (const RecordFilePtr& file : files) sizes.push_back(file->size());
  return sizes;
}

class RecordRange final : public RecordFile {
 public:
  RecordRange(RecordFilePtr file, int64_t begin, int64_t end)
      : file_(std::move(file)), begin_(begin), end_(end) {
    QT_ASSERT(begin >= 0 && begin <= end && end <= file_->size());
  }
  const std::string& path() const override { return file_->path(); }
  int64_t size() const override { return end_ - begin_; }
  std::string_view read(int64_t i, std::string& buffer) const override {
    return file_->read(begin_ + i, buffer);
  }
  std::string where(int64_t i) const override { return file_->where(begin_ + i); }

 private:
  RecordFilePtr file_;
  int64_t begin_, end_;
};

}  // namespace

RecordFilePtr slice(RecordFilePtr file, int64_t begin, int64_t end) {
  return std::make_shared<RecordRange>(std::move(file), begin, end);
}

RecordFiles::RecordFiles(std::vector<RecordFilePtr> files, const FileOptions& options)
    : files_(std::move(files)),
      order_(sizes_of(files_), options.cycle_length, options.block_length) {}

std::string_view RecordFiles::read(int64_t i, std::string& buffer) const {
  const auto [file, index] = order_.at(i);
  return files_[file]->read(index, buffer);
}

std::vector<std::string> RecordFiles::paths() const {
  std::vector<std::string> paths;
  for (const RecordFilePtr& file : files_) paths.push_back(file->path());
  return paths;
}

std::string RecordFiles::where(int64_t i) const {
  if (i >= 0) {
    const auto [file, index] = order_.at(i);
    return files_[file]->where(index);
  }
  if (files_.empty()) return "no file";
  return files_.size() == 1
             ? files_.front()->path()
             : fmt::format("{} and {} more files", files_.front()->path(), files_.size() - 1);
}

}  // namespace quintet::data
