#pragma once
// A transformation of optax as the optimizer runs it: an immutable description (Transformation), and one at work
// with its state (Running). Those in which every number goes its own way are elementwise.h's.
//
//   std::unique_ptr<Running> running = chain({clip(1.0), scale_by_adam()})->start();
//   running->init(slots);
//   running->update(updates);   // updates.gradients in place

#include <memory>
#include <string>
#include <vector>

#include "runtime/optim/optax/optax.h"
#include "runtime/optim/optax/rule_queue.h"
#include "runtime/optim/state_buffer.h"

namespace quintet {

/// What an update works on.
struct Updates {
  std::span<const ParamSlot> params;
  std::vector<FloatPointer> gradients;  // of each parameter, in the current device's memory
  std::vector<size_t> places;           // of each parameter in the queue
  UpdateArgs args;
  RuleQueue& queue;

  /// Queues a step for all parameters; states: of each, or none. Its control is that of args unless it has one.
  void apply(RuleStep step, std::span<const RuleState> states = {});
  /// What is known of the gradients as given holds no longer.
  void changed() {
    args.gradient_norm.reset();
    args.squares = nullptr;
  }
  /// The parameters with the gradients as they are now: runs what is queued.
  std::vector<ParamSlot> slots();
};

class Transformation;

class Running {
 public:
  virtual ~Running() = default;
  /// From here on it runs as `like`, which differs from what started it in numbers alone and outlives it.
  virtual void rebind(const Transformation& like) = 0;
  virtual void init(std::span<const ParamSlot> params) = 0;
  virtual void update(Updates& updates) = 0;
  /// The last update was skipped on the device: what it counted on the host is as before.
  virtual void take_back() {}
  /// Adds its arrays, with optax's paths below `prefix`, which ends in a slash or is empty.
  virtual void add_state(const std::string&, std::vector<StateArray>&) const {}
  virtual void simulate_sums(const UpdateArgs&, std::span<const ParamSlot>) const {}
  /// Whether it makes something of gradients that are not finite.
  virtual bool takes_not_finite() const { return false; }
  /// Itself, or the members of a chain, in the order they run.
  virtual void add_leaves(std::vector<Running*>& leaves) { leaves.push_back(this); }
};
using RunningPtr = std::unique_ptr<Running>;

class Transformation {
 public:
  virtual ~Transformation() = default;
  /// Lives no longer than the description.
  virtual RunningPtr start() const = 0;
  /// Optimizer::example_clip.
  virtual std::optional<double> example_clip() const { return std::nullopt; }
};
/// Throws a usage error unless `inner` is there and takes gradients of whole batches, as what stands inside `outer` gets.
void check_inner(const TransformationPtr& inner, const char* outer);

/// Throws a usage error unless what is to take a transformation's place has its form.
void check_form(bool same);

template <typename Options>
struct Described : Transformation {
  Options options;
  explicit Described(Options o) : options(std::move(o)) {}
};

/// One at work that is described by `Options`.
template <typename Options>
class RunningAs : public Running {
 public:
  explicit RunningAs(const Options& options) : what_(&options) {}
  void rebind(const Transformation& like) override {
    const auto* same = dynamic_cast<const Described<Options>*>(&like);
    check_form(same != nullptr);
    what_ = &same->options;
  }

 protected:
  const Options& what() const { return *what_; }

 private:
  const Options* what_;
};

/// One around another, `inner` of its options, which it starts.
template <typename Options>
class RunningAround : public RunningAs<Options> {
 public:
  using RunningAs<Options>::RunningAs;
  void rebind(const Transformation& like) override {
    RunningAs<Options>::rebind(like);
    inner_->rebind(*this->what().inner);
  }

 protected:
  void start_inner(std::span<const ParamSlot> params) {
    inner_ = this->what().inner->start();
    inner_->init(params);
  }
  RunningPtr inner_;
};

/// A transformation from a class of Running that is made of `Options`.
template <typename R, typename Options>
TransformationPtr transformation(Options options) {
  struct Description final : Described<Options> {
    using Described<Options>::Described;
    RunningPtr start() const override { return std::make_unique<R>(this->options); }
    std::optional<double> example_clip() const override {
      if constexpr (requires { R::example_clip(this->options); })
        return R::example_clip(this->options);
      return std::nullopt;
    }
  };
  return std::make_shared<const Description>(std::move(options));
}

/// A number a parameter of its block becomes that of the global array.
void sum_over_ranks(std::vector<double>& numbers, std::span<const ParamSlot> params,
                    Reducer* reducer);

/// A rank-0 int32 of the state, in the host's memory.
StateBuffer host_count();
StateArray state_of(const std::string& name, const StateBuffer& count);

}  // namespace quintet
