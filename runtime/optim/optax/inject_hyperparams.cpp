#include "runtime/optim/optax/inject_hyperparams.h"

#include "runtime/optim/optax/elementwise.h"

namespace quintet {
namespace {

class RunningInjected final : public RunningAs<InjectOptions> {
 public:
  using RunningAs::RunningAs;
  void rebind(const Transformation& like) override {
    RunningAs::rebind(like);
    check_form(what().hyperparams.size() == numbers_.size());
  }

  void init(std::span<const ParamSlot> params) override {
    count_ = host_count();
    for (const Hyperparam& h : what().hyperparams) {
      numbers_.push_back(zero_state(h.is_integer ? DType::i32 : DType::f32, {}, Device::cpu()));
      schedule_counts_.push_back(host_count());
      if (const auto* number = std::get_if<double>(&h.value)) set(numbers_.size() - 1, *number);
    }
    described_ = with_numbers();
    inner_ = described_->start();
    inner_->init(params);
  }

  /// Throws a usage error with the numbers if they make no transformation, or another one.
  void update(Updates& updates) override {
    try {
      const TransformationPtr now = with_numbers();
      inner_->rebind(*now);
      described_ = now;
    } catch (const Error& error) {
      fail(ExitCode::kUsage, "{}: {}; at update {} they are {}", what().where, error.what(),
           count_.count(), described_numbers());
    }
    inner_->update(updates);
    add_to_counts(1);
  }
  void take_back() override {
    add_to_counts(-1);
    inner_->take_back();
  }
  void add_state(const std::string& prefix, std::vector<StateArray>& arrays) const override {
    arrays.push_back(state_of(prefix + "count", count_));
    for (size_t i = 0; i < numbers_.size(); ++i) {
      const std::string& name = what().hyperparams[i].name;
      arrays.push_back(state_of(prefix + "hyperparams/" + name, numbers_[i]));
      if (is_scheduled(i))
        arrays.push_back(state_of(fmt::format("{}hyperparams_states/{}/count", prefix, name),
                                  schedule_counts_[i]));
    }
    inner_->add_state(prefix + "inner_state/", arrays);
  }
  void simulate_sums(const UpdateArgs& args, std::span<const ParamSlot> params) const override {
    inner_->simulate_sums(args, params);
  }
  bool takes_not_finite() const override { return inner_->takes_not_finite(); }

 private:
  bool is_scheduled(size_t i) const {
    return std::holds_alternative<Schedule>(what().hyperparams[i].value);
  }
  void set(size_t i, double number) {
    if (what().hyperparams[i].is_integer)
      numbers_[i].count() = static_cast<int32_t>(number);
    else
      *numbers_[i].floats() = static_cast<float>(number);
  }
  /// Schedules write their numbers; those of the state make the transformation.
  TransformationPtr with_numbers() {
    std::vector<double> numbers;
    for (size_t i = 0; i < numbers_.size(); ++i) {
      if (is_scheduled(i))
        set(i, value_at(what().hyperparams[i].value, schedule_counts_[i].count()));
      numbers.push_back(number_of(i));
    }
    return what().make(numbers);
  }
  std::string described_numbers() const {
    std::vector<std::string> texts;
    for (size_t i = 0; i < numbers_.size(); ++i)
      texts.push_back(fmt::format("{} = {}", what().hyperparams[i].name, number_of(i)));
    return fmt::format("{}", fmt::join(texts, ", "));
  }
  double number_of(size_t i) const {
    return what().hyperparams[i].is_integer ? static_cast<double>(numbers_[i].count())
                                            : static_cast<double>(*numbers_[i].floats());
  }
  void add_to_counts(int32_t n) {
    count_.count() += n;
    for (size_t i = 0; i < numbers_.size(); ++i)
      if (is_scheduled(i)) schedule_counts_[i].count() += n;
  }

  StateBuffer count_;
  std::vector<StateBuffer> numbers_, schedule_counts_;  // of each hyperparameter
  TransformationPtr described_;                         // what inner_ runs
  RunningPtr inner_;
};

}  // namespace

TransformationPtr inject_hyperparams(InjectOptions options) {
  std::vector<double> first;
  for (const Hyperparam& h : options.hyperparams)
    first.push_back(static_cast<double>(value_at(h.value, 0)));
  check_inner(options.make(first), options.where.c_str());
  return transformation<RunningInjected>(std::move(options));
}

}  // namespace quintet
