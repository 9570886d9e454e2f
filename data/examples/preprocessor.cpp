#include "data/examples/preprocessor.h"

#include <algorithm>

#include "data/examples/data_source.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

/// Runs `work` on an example. A data error either gets the example's place put before it or, if the
/// source skips bad examples, is swallowed: then the result is false.
template <typename Work>
bool guarded(const Example& place, Work&& work) {
  try {
    work();
    return true;
  } catch (const Error& error) {
    if (error.code() != ExitCode::kData) throw;
    const std::string where = place.where();
    const Error placed = std::string_view(error.what()).starts_with(where)
                             ? error
                             : Error(ExitCode::kData, fmt::format("{}: {}", where, error.what()));
    const auto* reader = dynamic_cast<const Reader*>(place.provenance);
    if (reader == nullptr) throw placed;
    reader->leave_out(place.index, placed);
    return false;
  }
}

/// Without this, a data set whose every example is dropped would be read for ever.
void check_dropped(int64_t in_a_row, const Example& last) {
  constexpr int64_t kMost = 10'000'000;
  QT_CHECK_AS(
      ExitCode::kData, in_a_row < kMost,
      "{}: the last {} examples were all empty or dropped by a preprocessor; check the data "
      "and the task's preprocessors",
      last.where(), in_a_row);
}

/// The place of an example without its features.
Example place_of(const Example& example) {
  Example place;
  place.key = example.key;
  place.provenance = example.provenance;
  place.index = example.index;
  return place;
}

/// Examples made at a place: its provenance and index, and a key of its own for each.
void put_at(const Example& place, std::vector<Example>& made) {
  for (size_t i = 0; i < made.size(); ++i) {
    made[i].key = split_at(place.key, i);
    made[i].provenance = place.provenance;
    made[i].index = place.index;
  }
}

class MapStream final : public Stream {
 public:
  MapStream(StreamPtr input, std::function<bool(Example&)> change)
      : input_(std::move(input)), change_(std::move(change)) {}
  bool next(Example& out) override {
    for (int64_t dropped = 0; input_->next(out); check_dropped(++dropped, out)) {
      bool keep = false;
      if (guarded(out, [&] { keep = change_(out); }) && keep) return true;
    }
    return false;
  }
  void save(Position& position) const override { input_->save(position); }
  void restore(PositionReader& position) override { input_->restore(position); }

 private:
  StreamPtr input_;
  std::function<bool(Example&)> change_;
};

/// Stages that hold results back: their place is where the inputs of the held results began, and
/// how many of the results are already out. Restoring makes them again.
class HoldingStream : public Stream {
 public:
  explicit HoldingStream(StreamPtr input) : input_(std::move(input)) {}
  bool next(Example& out) override {
    for (int64_t empty = 0; at_ == held_.size(); check_dropped(++empty, out)) {
      before_.clear();
      input_->save(before_);
      held_.clear();
      at_ = 0;
      if (!refill(held_)) return false;
    }
    out = std::move(held_[at_++]);
    return true;
  }
  void save(Position& position) const override {
    if (at_ == held_.size())
      input_->save(position);
    else
      position.insert(position.end(), before_.begin(), before_.end());
    position.push_back(at_ == held_.size() ? 0 : static_cast<int64_t>(at_));
  }
  void restore(PositionReader& position) override {
    input_->restore(position);
    const int64_t at = position.take();
    held_.clear();
    at_ = 0;
    if (at == 0) return;
    before_.clear();
    input_->save(before_);
    refill(held_);
    QT_CHECK_AS(ExitCode::kData, at > 0 && at < static_cast<int64_t>(held_.size()),
                "data position: result {} of {}; the data or its preprocessing has changed", at,
                held_.size());
    at_ = static_cast<size_t>(at);
  }

 protected:
  /// Appends the results of the next inputs (perhaps none); false at the end of the input.
  virtual bool refill(std::vector<Example>& out) = 0;
  StreamPtr input_;

 private:
  std::vector<Example> held_;
  size_t at_ = 0;
  Position before_;
};

class FlatMapStream final : public HoldingStream {
 public:
  using Expand = std::function<void(Example&&, std::vector<Example>&)>;
  FlatMapStream(StreamPtr input, Expand expand)
      : HoldingStream(std::move(input)), expand_(std::move(expand)) {}

 protected:
  bool refill(std::vector<Example>& out) override {
    if (!input_->next(example_)) return false;
    const Example place = place_of(example_);
    if (!guarded(place, [&] { expand_(std::move(example_), out); })) out.clear();
    put_at(place, out);
    return true;
  }

 private:
  Expand expand_;
  Example example_;
};

class GroupStream final : public HoldingStream {
 public:
  using Merge = std::function<void(std::vector<Example>&, std::vector<Example>&)>;
  GroupStream(StreamPtr input, int64_t size, Merge merge)
      : HoldingStream(std::move(input)), size_(size), merge_(std::move(merge)) {}

 protected:
  bool refill(std::vector<Example>& out) override {
    group_.clear();
    Example example;
    while (static_cast<int64_t>(group_.size()) < size_ && input_->next(example))
      group_.push_back(std::move(example));
    if (group_.empty()) return false;
    const Example place = place_of(group_.front());
    merge_(group_, out);
    put_at(place, out);
    return true;
  }

 private:
  int64_t size_;
  Merge merge_;
  std::vector<Example> group_;
};

}  // namespace

constexpr std::string_view kFeatureTypes[] = {"int32",   "float32", "int64",
                                              "float64", "bool",    "string"};

std::string_view name_of(FeatureType type) { return kFeatureTypes[static_cast<size_t>(type)]; }

std::optional<FeatureType> feature_type_from_name(std::string_view name) {
  const auto found = std::ranges::find(kFeatureTypes, name);
  if (found == std::end(kFeatureTypes)) return std::nullopt;
  return static_cast<FeatureType>(found - std::begin(kFeatureTypes));
}

namespace {

/// Whether a value can be of a type, whatever its rank.
struct IsOfType {
  FeatureType type;
  bool operator()(const std::string&) const { return type == FeatureType::string; }
  bool operator()(double) const {
    return type == FeatureType::float32 || type == FeatureType::float64;
  }
  bool operator()(int64_t v) const {
    if (type == FeatureType::boolean) return v == 0 || v == 1;
    return type == FeatureType::int64 ||
           (type == FeatureType::int32 && v == static_cast<int32_t>(v));
  }
  template <typename T>
  bool operator()(const std::vector<T>& v) const {
    if constexpr (std::is_same_v<T, int32_t>)
      if (type != FeatureType::boolean)
        return v.empty() || type == FeatureType::int32 || type == FeatureType::int64;
    return std::ranges::all_of(v, [&](const T& item) {
      if constexpr (std::is_same_v<T, int32_t>)
        return (*this)(int64_t{item});
      else
        return (*this)(item);
    });
  }
  template <typename T>
  bool operator()(const NdArray<T>& v) const {
    return (*this)(v.values);
  }
};

}  // namespace

bool is_of_type(const Value& value, FeatureType type) { return std::visit(IsOfType{type}, value); }

void check_type(const Example& example, std::string_view name, FeatureType type, size_t rank) {
  const Value& value = example.at(name);
  QT_CHECK_AS(ExitCode::kData, is_of_type(value, type) && rank_of(value) == rank,
              "{}: feature '{}' is {}; expected {} of rank {}", example.where(), name,
              to_string(value), name_of(type), rank);
}

const Feature* find_feature(const Features& features, std::string_view name) {
  for (const auto& [key, feature] : features)
    if (key == name) return &feature;
  return nullptr;
}

std::optional<int64_t> find_length(const Lengths& lengths, std::string_view name) {
  for (const auto& [key, length] : lengths)
    if (key == name) return length;
  return std::nullopt;
}

int64_t PreprocessContext::length(std::string_view name, std::string_view who) const {
  const auto found = sequence_length ? find_length(*sequence_length, name) : std::nullopt;
  QT_CHECK(found.has_value(),
           "{}: needs the length of feature '{}'; give it in task_feature_lengths", who, name);
  return *found;
}

const Feature& PreprocessContext::feature(std::string_view name, std::string_view who) const {
  const Feature* found = find_feature(output_features, name);
  QT_CHECK(found != nullptr, "{}: the task has no output feature '{}'", who, name);
  return *found;
}

StreamPtr map_stream(StreamPtr input, std::function<bool(Example&)> change) {
  return std::make_unique<MapStream>(std::move(input), std::move(change));
}

StreamPtr flat_map_stream(StreamPtr input,
                          std::function<void(Example&& in, std::vector<Example>& out)> expand) {
  return std::make_unique<FlatMapStream>(std::move(input), std::move(expand));
}

StreamPtr group_stream(
    StreamPtr input, int64_t size,
    std::function<void(std::vector<Example>& in, std::vector<Example>& out)> merge) {
  QT_CHECK(size > 0, "group of {} examples: the size must be positive", size);
  return std::make_unique<GroupStream>(std::move(input), size, std::move(merge));
}

StreamPtr CacheDatasetPlaceholder::apply(StreamPtr input, const PreprocessContext&) const {
  return input;
}

}  // namespace quintet::data
