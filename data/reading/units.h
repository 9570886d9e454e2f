#pragma once
// The unit of reading: a fixed number of neighbouring places of a task's order, read and
// preprocessed by themselves, so that units can be made by any thread or process, ahead of time,
// and the stream of their examples is the same. Preprocessors that join examples join those of one
// unit.
//
//   UnitThreads threads(4);
//   StreamPtr stream = unit_stream(order, preprocess, {.runner = &threads});

#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "data/reading/read_order.h"

namespace quintet::data {

/// Examples of a unit; with an error, those before it.
struct Unit {
  std::vector<Example> examples;
  std::exception_ptr error;
};

/// Makes units somewhere else than in the caller.
class UnitRunner {
 public:
  virtual ~UnitRunner() = default;
  /// A number for a stream of units; streams opened in the same order get the same numbers.
  virtual int64_t new_stream() = 0;
  /// Unit `unit` of a stream, which `make` makes from examples of `origin`. Called in the order in
  /// which units are needed.
  virtual std::future<Unit> run(int64_t stream, int64_t unit, const Origin& origin,
                                std::function<Unit()> make) = 0;
  /// Units to ask for before they are needed, over all streams.
  virtual int64_t ahead() const = 0;
  /// The caller waits for a unit now (none: for nothing any more); to name who holds it up.
  virtual void waits_for(int64_t stream, std::optional<int64_t> unit) {
    static_cast<void>(stream), static_cast<void>(unit);
  }
  /// Another process that the caller has been waiting for longer than a moment; empty: none.
  virtual std::string held_up_by() { return ""; }
  /// Nothing is needed any more: who waits for a unit gets an error.
  virtual void cancel() {}
};

/// Threads of this process.
class UnitThreads final : public UnitRunner {
 public:
  explicit UnitThreads(int threads);
  /// Units that have not been begun are dropped.
  ~UnitThreads() override;
  int64_t new_stream() override { return streams_++; }
  std::future<Unit> run(int64_t stream, int64_t unit, const Origin& origin,
                        std::function<Unit()> make) override;
  int64_t ahead() const override;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::vector<std::thread> threads_;
  int64_t streams_ = 0;
};
/// The number of threads for a request (0: a quarter of the machine's, at least 1, at most 16).
int reader_threads(int requested);

constexpr int64_t kUnitPlaces = 128;  // as many examples as t5's span corruption joins

struct UnitOptions {
  int64_t places = kUnitPlaces;
  std::shared_ptr<UnitRunner> runner =
      {};            // none: each unit is made when its first example is asked for
  double share = 1;  // of what the runner works ahead
};
/// What preprocessing a task does to a stream; called once a unit, from any thread.
using Preprocess = std::function<StreamPtr(StreamPtr)>;

/// All units of an order, one after the other. Its position is two integers: the unit, and the
/// examples taken from it. Throws what `preprocess` throws for its arguments.
StreamPtr unit_stream(std::shared_ptr<const ReadOrder> order, Preprocess preprocess,
                      const UnitOptions& options);

}  // namespace quintet::data
