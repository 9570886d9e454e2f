#include "data/examples/data_source.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

class FunctionReader final : public Reader {
 public:
  FunctionReader(std::string name, FunctionDataSource::Split split)
      : name_(std::move(name)), split_(std::move(split)) {}
  std::optional<int64_t> size() const override { return split_.size; }
  void read(int64_t i, Example& out) const override { split_.make(i, out); }
  std::string where(int64_t index) const override {
    return index < 0 ? name_ : fmt::format("{} example {}", name_, index);
  }

 private:
  std::string name_;
  FunctionDataSource::Split split_;
};

}  // namespace

FunctionDataSource::FunctionDataSource(std::string name, std::map<std::string, Split> splits)
    : name_(std::move(name)), splits_(std::move(splits)) {}

std::vector<std::string> FunctionDataSource::splits() const {
  std::vector<std::string> names;
  for (const auto& [name, split] : splits_) names.push_back(name);
  return names;
}

std::shared_ptr<const Reader> FunctionDataSource::open(const std::string& split) const {
  const auto found = splits_.find(split);
  QT_CHECK_AS(ExitCode::kData, found != splits_.end(), "{}: unknown split '{}'; it has {}", name_,
              split, fmt::join(splits(), ", "));
  return std::make_shared<FunctionReader>(name_ + " " + split, found->second);
}

}  // namespace quintet::data
