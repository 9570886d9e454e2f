#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "data/examples/random.h"
#include "data/tasks/task.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

/// Draws the next part by its rate. A part that ends is the end, or leaves its draws to the others.
class MixtureStream final : public Stream {
 public:
  /// `drawn`: counters of the parts; none: nobody counts.
  MixtureStream(std::vector<StreamPtr> parts, std::vector<double> rates, Key key,
                bool stops_on_empty, std::vector<int64_t*> drawn)
      : parts_(std::move(parts)),
        rates_(std::move(rates)),
        key_(key),
        stops_on_empty_(stops_on_empty),
        drawn_(std::move(drawn)) {
    ended_.assign(parts_.size(), 0);
  }
  bool next(Example& out) override {
    while (true) {
      const double total = total_rate();
      if (total <= 0 || (stops_on_empty_ && any_ended())) return false;
      const size_t part = pick(total);
      ++draws_;
      if (parts_[part]->next(out)) {
        out.key = fold_in(out.key, static_cast<uint32_t>(part));
        if (!drawn_.empty()) ++*drawn_[part];
        return true;
      }
      ended_[part] = 1;
    }
  }
  void save(Position& position) const override {
    for (const StreamPtr& part : parts_) part->save(position);
    for (size_t i = 0; i < ended_.size(); i += kFlags) {
      int64_t flags = 0;
      for (size_t k = i; k < std::min(ended_.size(), i + kFlags); ++k)
        flags |= ended_[k] << (k - i);
      position.push_back(flags);
    }
    position.push_back(draws_);
  }
  void restore(PositionReader& position) override {
    for (const StreamPtr& part : parts_) part->restore(position);
    for (size_t i = 0; i < ended_.size(); i += kFlags) {
      const int64_t flags = position.take();
      for (size_t k = i; k < std::min(ended_.size(), i + kFlags); ++k)
        ended_[k] = flags >> (k - i) & 1;
    }
    draws_ = position.take();
  }

 private:
  static constexpr size_t kFlags = 62;  // parts whose end one integer of the position tells
  bool any_ended() const {
    return std::any_of(ended_.begin(), ended_.end(), [](int64_t ended) { return ended != 0; });
  }
  double total_rate() const {
    double total = 0;
    for (size_t i = 0; i < rates_.size(); ++i) total += ended_[i] ? 0 : rates_[i];
    return total;
  }
  size_t pick(double total) const {
    double left = Random(split_at(key_, static_cast<uint64_t>(draws_))).uniform() * total;
    size_t last = 0;
    for (size_t i = 0; i < rates_.size(); ++i) {
      if (ended_[i] || rates_[i] == 0) continue;
      last = i;
      left -= rates_[i];
      if (left < 0) break;
    }
    return last;
  }

  std::vector<StreamPtr> parts_;
  std::vector<double> rates_;
  std::vector<int64_t> ended_;
  Key key_;
  bool stops_on_empty_;
  std::vector<int64_t*> drawn_;
  int64_t draws_ = 0;
};

/// Parts must not draw alike: two tasks over one source would show the same example side by side.
int64_t seed_of_part(int64_t seed, const std::string& name) {
  Key key = key_from_seed(seed);
  for (char c : name) key = fold_in(key, static_cast<uint8_t>(c));
  return key.b;
}

}  // namespace

Mixture::Mixture(std::string name, std::vector<Part> parts, bool stops_on_empty)
    : name_(std::move(name)), parts_(std::move(parts)), stops_on_empty_(stops_on_empty) {
  QT_CHECK(!parts_.empty(), "mixture '{}' has no tasks", name_);
  for (const auto& [part, rate] : parts_) {
    QT_CHECK(part != nullptr, "mixture '{}': None is not a task", name_);
    const double* number = std::get_if<double>(&rate);
    QT_CHECK(number == nullptr || *number >= 0,
             "mixture '{}': the rate of '{}' is {}, expected 0 or more", name_, part->name(),
             *number);
    const Features& first = parts_.front().first->output_features();
    for (const auto& [key, feature] : part->output_features()) {
      const Feature* other = find_feature(first, key);
      QT_CHECK(other != nullptr && part->output_features().size() == first.size(),
               "mixture '{}': '{}' and '{}' have different output features", name_,
               parts_.front().first->name(), part->name());
      QT_CHECK(*other->vocabulary == *feature.vocabulary,
               "mixture '{}': feature '{}' has vocabulary {} in '{}' and {} in '{}'", name_, key,
               other->vocabulary->description(), parts_.front().first->name(),
               feature.vocabulary->description(), part->name());
    }
  }
}

const Features& Mixture::output_features() const { return parts_.front().first->output_features(); }

std::vector<std::string> Mixture::splits() const {
  std::vector<std::string> all;
  for (const auto& [part, rate] : parts_)
    for (const std::string& split : part->splits())
      if (std::find(all.begin(), all.end(), split) == all.end()) all.push_back(split);
  return all;
}

std::vector<double> Mixture::rates(const StreamOptions& options) const {
  const auto all = tasks();
  std::vector<double> rates(all.size(), 0.0);
  const auto add = [&](const Task* task, double rate) {
    rates[static_cast<size_t>(std::find(all.begin(), all.end(), task) - all.begin())] += rate;
  };
  for (const auto& [part, rate] : parts_) {
    const double* number = std::get_if<double>(&rate);
    const double value = number ? *number : std::get<1>(rate)(part, options);
    QT_CHECK(value >= 0 && std::isfinite(value),
             "mixture '{}': the rate of '{}' is {}, expected a finite number of 0 or more", name_,
             part->name(), value);
    const auto tasks_of_part = part->tasks();
    const auto* mixture = dynamic_cast<const Mixture*>(part.get());
    const auto inner = mixture ? mixture->rates(options) : std::vector<double>{1.0};
    const double total = std::accumulate(inner.begin(), inner.end(), 0.0);
    for (size_t i = 0; i < inner.size(); ++i)
      if (total > 0) add(tasks_of_part[i], value * inner[i] / total);
  }
  return rates;
}

std::vector<std::pair<const Task*, double>> Mixture::drawn(const StreamOptions& options) const {
  std::vector<std::pair<const Task*, double>> drawn;
  const auto all = tasks();
  const auto rate_of = rates(options);
  for (size_t i = 0; i < all.size(); ++i) {
    const auto splits = all[i]->splits();
    if (rate_of[i] > 0 && std::find(splits.begin(), splits.end(), options.split) != splits.end())
      drawn.emplace_back(all[i], rate_of[i]);
  }
  QT_CHECK(!drawn.empty(),
           "no task of mixture '{}' with a rate above 0 has a split '{}'; it has {}", name_,
           options.split, fmt::join(splits(), ", "));
  return drawn;
}

bool Mixture::has_end(const std::string& split) const {
  const auto all = tasks();
  return std::all_of(all.begin(), all.end(), [&](const Task* task) {
    const auto splits = task->splits();
    return std::find(splits.begin(), splits.end(), split) == splits.end() || task->has_end(split);
  });
}

Contents Mixture::contents(const StreamOptions& options) const {
  Contents all;
  for (const auto& [task, rate] : drawn(options)) all.add(task->contents(options));
  return all;
}

StreamPtr Mixture::stream(const StreamOptions& options) const {
  const auto parts = drawn(options);
  double total = 0;
  for (const auto& [task, rate] : parts) total += rate;
  std::vector<StreamPtr> streams;
  std::vector<double> rates;
  std::vector<int64_t*> drawn;  // entries of a map stay where they are
  for (const auto& [task, rate] : parts) {
    StreamOptions part_options = options;
    part_options.share = options.share * rate / total;
    part_options.seed = seed_of_part(options.seed, task->name());
    streams.push_back(task->stream(part_options));
    rates.push_back(rate);
    if (options.drawn) drawn.push_back(&(*options.drawn)[task->name()]);
  }
  constexpr uint32_t kDraws = 3;
  return std::make_unique<MixtureStream>(std::move(streams), std::move(rates),
                                         fold_in(key_from_seed(options.seed), kDraws),
                                         stops_on_empty_, std::move(drawn));
}

std::vector<const Task*> Mixture::tasks() const {
  std::vector<const Task*> all;
  for (const auto& [part, rate] : parts_)
    for (const Task* task : part->tasks())
      if (std::find(all.begin(), all.end(), task) == all.end()) all.push_back(task);
  return all;
}

}  // namespace quintet::data
