#include "data/examples/data_source.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

class FirstExamples final : public Reader {
 public:
  FirstExamples(std::shared_ptr<const Reader> whole, int64_t count)
      : source_(std::move(whole)), count_(std::min(count, source_->size().value_or(count))) {
    on_bad_example = source_->on_bad_example;
  }
  std::optional<int64_t> size() const override { return count_; }
  void read(int64_t i, Example& out) const override { source_->read(i, out); }
  std::string where(int64_t i) const override { return source_->where(i); }
  std::vector<std::string> files() const override { return source_->files(); }
  int64_t shuffle_window() const override { return source_->shuffle_window(); }

 private:
  std::shared_ptr<const Reader> source_;
  int64_t count_;
};

}  // namespace

TruncatedDataSource::TruncatedDataSource(DataSourcePtr source, Sizes sizes)
    : source_(std::move(source)), sizes_(std::move(sizes)) {
  QT_CHECK(source_ != nullptr, "TruncatedDatasetProvider: child is required");
  for (const auto& [split, size] : sizes_)
    QT_CHECK(size > 0, "split_sizes: split '{}' is to keep {} examples, expected at least 1", split,
             size);
}

std::shared_ptr<const Reader> TruncatedDataSource::open(const std::string& split) const {
  const auto size = sizes_.find(split);
  auto whole = source_->open(split);
  if (size == sizes_.end()) return whole;
  return std::make_shared<FirstExamples>(std::move(whole), size->second);
}

std::shared_ptr<const Reader> TruncatedDataSource::open_shard(const std::string& split,
                                                              const ShardInfo& shard) const {
  return sizes_.contains(split) ? every_nth(open(split), shard) : source_->open_shard(split, shard);
}

int64_t TruncatedDataSource::num_shards(const std::string& split) const {
  return sizes_.contains(split) ? 1 : source_->num_shards(split);
}

}  // namespace quintet::data
