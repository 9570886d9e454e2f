#include "data/examples/data_source.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

constexpr const char* kTrain = "train";
constexpr const char* kValidation = "validation";

/// Validation example i is example i * every of the whole; training examples are those between.
class HoldOutReader final : public Reader {
 public:
  HoldOutReader(std::shared_ptr<const Reader> whole, int64_t every, bool held_out)
      : source_(std::move(whole)), every_(every), held_out_(held_out) {
    on_bad_example = source_->on_bad_example;
  }
  std::optional<int64_t> size() const override {
    const int64_t all = *source_->size(), held_out = (all + every_ - 1) / every_;
    return held_out_ ? held_out : all - held_out;
  }
  void read(int64_t i, Example& out) const override { source_->read(index_of(i), out); }
  std::string where(int64_t i) const override { return source_->where(i < 0 ? i : index_of(i)); }
  std::vector<std::string> files() const override { return source_->files(); }

 private:
  int64_t index_of(int64_t i) const { return held_out_ ? i * every_ : i + i / (every_ - 1) + 1; }
  std::shared_ptr<const Reader> source_;
  int64_t every_;
  bool held_out_;
};

class EveryNth final : public Reader {
 public:
  EveryNth(std::shared_ptr<const Reader> whole, const ShardInfo& shard)
      : source_(std::move(whole)), shard_(shard) {
    on_bad_example = source_->on_bad_example;
  }
  std::optional<int64_t> size() const override {
    const auto all = source_->size();
    if (!all) return std::nullopt;
    return (*all - shard_.index + shard_.num_shards - 1) / shard_.num_shards;
  }
  void read(int64_t i, Example& out) const override { source_->read(index_of(i), out); }
  std::string where(int64_t i) const override { return source_->where(i < 0 ? i : index_of(i)); }
  std::vector<std::string> files() const override { return source_->files(); }

 private:
  int64_t index_of(int64_t i) const { return shard_.index + i * shard_.num_shards; }
  std::shared_ptr<const Reader> source_;
  ShardInfo shard_;
};

}  // namespace

std::shared_ptr<const Reader> every_nth(std::shared_ptr<const Reader> reader,
                                        const ShardInfo& shard) {
  QT_CHECK(shard.index >= 0 && shard.index < shard.num_shards, "shard {} of {} does not exist",
           shard.index, shard.num_shards);
  if (shard.num_shards == 1) return reader;
  return std::make_shared<EveryNth>(std::move(reader), shard);
}

HoldOutDataSource::HoldOutDataSource(DataSourcePtr source, int64_t every, std::string split)
    : source_(std::move(source)), every_(every), split_(std::move(split)) {
  QT_CHECK(source_ != nullptr, "HoldOutDataSource: source is required");
  QT_CHECK(every >= 2, "HoldOutDataSource: every {} must be at least 2", every);
}

std::vector<std::string> HoldOutDataSource::splits() const { return {kTrain, kValidation}; }

std::shared_ptr<const Reader> HoldOutDataSource::open(const std::string& split) const {
  QT_CHECK_AS(ExitCode::kData, split == kTrain || split == kValidation,
              "unknown split '{}'; the source has {}, {}", split, kTrain, kValidation);
  auto whole = source_->open(split_);
  QT_CHECK(whole->size().has_value(), "{}: a split without end cannot be divided",
           whole->where(-1));
  return std::make_shared<HoldOutReader>(std::move(whole), every_, split == kValidation);
}

}  // namespace quintet::data
