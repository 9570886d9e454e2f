#include "models/serving/led_network.h"

#include <cstring>
#include <exception>
#include <map>
#include <type_traits>

#include "runtime/base/check.h"

namespace quintet::serving {
namespace {

enum Command : int64_t { kRead, kEncode, kRows, kStep, kEnd };

/// Numbers, one after another, as the first rank sends them.
class Message {
 public:
  Message() = default;
  explicit Message(const std::string& bytes) : numbers_(bytes.size() / sizeof(int64_t)) {
    std::memcpy(numbers_.data(), bytes.data(), numbers_.size() * sizeof(int64_t));
  }
  std::string bytes() const {
    return {reinterpret_cast<const char*>(numbers_.data()), numbers_.size() * sizeof(int64_t)};
  }
  void put(int64_t number) { numbers_.push_back(number); }
  void put(std::span<const Tokens* const> inputs) {
    put(std::ssize(inputs));
    for (const Tokens* tokens : inputs) {
      put(std::ssize(*tokens));
      numbers_.insert(numbers_.end(), tokens->begin(), tokens->end());
    }
  }
  int64_t take() { return numbers_.at(next_++); }
  std::vector<Tokens> take_inputs() {
    std::vector<Tokens> inputs(static_cast<size_t>(take()));
    for (Tokens& tokens : inputs) {
      tokens.resize(static_cast<size_t>(take()));
      for (int32_t& token : tokens) token = static_cast<int32_t>(take());
    }
    return inputs;
  }

 private:
  std::vector<int64_t> numbers_;
  size_t next_ = 0;
};

std::vector<const Tokens*> pointers_to(const std::vector<Tokens>& inputs) {
  std::vector<const Tokens*> pointers;
  for (const Tokens& tokens : inputs) pointers.push_back(&tokens);
  return pointers;
}

/// Numbers of caches that are gone: the others let go of theirs before the next pass.
using Gone = std::shared_ptr<std::vector<int64_t>>;

struct LedInput final : InputCache {
  LedInput(int64_t id, std::unique_ptr<InputCache> cache, Gone list)
      : number(id), own(std::move(cache)), gone(std::move(list)) {}
  ~LedInput() override { gone->push_back(number); }
  const int64_t number;
  const std::unique_ptr<InputCache> own;
  const Gone gone;
};

struct LedRows final : RowCaches {
  LedRows(int64_t id, std::unique_ptr<RowCaches> caches, Gone list)
      : number(id), own(std::move(caches)), gone(std::move(list)) {}
  ~LedRows() override { gone->push_back(number); }
  int64_t bytes() const override { return own->bytes(); }
  int64_t reserved_bytes() const override { return own->reserved_bytes(); }
  const int64_t number;
  const std::unique_ptr<RowCaches> own;
  const Gone gone;
};

class LedNetwork final : public ServedNetwork {
 public:
  LedNetwork(std::unique_ptr<ServedNetwork> network, SharedMemoryGroup& group)
      : network_(std::move(network)), group_(group) {}
  ~LedNetwork() override {
    if (std::uncaught_exceptions() == 0) send(kEnd, {});
  }

  int64_t vocab_size() const override { return network_->vocab_size(); }
  bool decoder_only() const override { return network_->decoder_only(); }
  int64_t input_bytes(const Tokens& inputs) const override { return network_->input_bytes(inputs); }
  int64_t row_bytes(const RowLimits& limits) const override { return network_->row_bytes(limits); }

  std::vector<std::unique_ptr<InputCache>> read(std::span<const Tokens* const> inputs) override {
    Message message;
    message.put(inputs);
    auto made = pass(kRead, message, [&] { return network_->read(inputs); });
    for (std::unique_ptr<InputCache>& input : made)
      input = std::make_unique<LedInput>(next_++, std::move(input), gone_inputs_);
    return made;
  }
  std::vector<std::vector<float>> encode(std::span<const Tokens* const> inputs) override {
    Message message;
    message.put(inputs);
    return pass(kEncode, message, [&] { return network_->encode(inputs); });
  }
  std::unique_ptr<RowCaches> rows(const InputCache& input, const RowLimits& limits) override {
    const auto& led = static_cast<const LedInput&>(input);
    Message message;
    message.put(led.number);
    message.put(limits.rows);
    message.put(limits.max_length);
    return std::make_unique<LedRows>(
        next_++, pass(kRows, message, [&] { return network_->rows(*led.own, limits); }),
        gone_rows_);
  }
  std::vector<JobAnswer> step(std::span<const StepJob> jobs) override {
    Message message;
    std::vector<StepJob> own(jobs.begin(), jobs.end());
    message.put(std::ssize(jobs));
    for (StepJob& job : own) {
      const auto& led = static_cast<const LedRows&>(*job.rows);
      job.rows = led.own.get();
      message.put(led.number);
      message.put(std::ssize(job.steps));
      for (const decoding::RowStep& step : job.steps)
        for (const int64_t number : {step.row, step.token, step.position, step.source})
          message.put(number);
    }
    return pass(kStep, message, [&] { return network_->step(own); });
  }

 private:
  void send(Command command, const Message& message) {
    Message head;
    head.put(command);
    for (const Gone& gone : {gone_rows_, gone_inputs_}) {
      head.put(std::ssize(*gone));
      for (const int64_t number : *gone) head.put(number);
      gone->clear();
    }
    group_.of_leader(head.bytes() + message.bytes());
  }
  template <class Body>
  std::invoke_result_t<Body> pass(Command command, const Message& message, const Body& body) {
    send(command, message);
    try {
      return body();
    } catch (const std::exception& error) {
      group_.end(fmt::format("tensor parallel: a pass failed on the first rank: {}", error.what()));
      throw;
    }
  }

  const std::unique_ptr<ServedNetwork> network_;
  SharedMemoryGroup& group_;
  const Gone gone_inputs_ = std::make_shared<std::vector<int64_t>>();
  const Gone gone_rows_ = std::make_shared<std::vector<int64_t>>();
  int64_t next_ = 0;
};

/// What another rank holds, by the first rank's numbers.
struct Follower {
  ServedNetwork& network;
  std::map<int64_t, std::unique_ptr<InputCache>> inputs;
  std::map<int64_t, std::unique_ptr<RowCaches>> rows;
  int64_t next = 0;

  void forget(Message& message) {
    for (int64_t count = message.take(); count > 0; --count) rows.erase(message.take());
    for (int64_t count = message.take(); count > 0; --count) inputs.erase(message.take());
  }
  void step(Message& message) {
    const int64_t count = message.take();
    std::vector<std::vector<decoding::RowStep>> steps(static_cast<size_t>(count));
    std::vector<StepJob> jobs;
    for (std::vector<decoding::RowStep>& of_job : steps) {
      RowCaches* caches = rows.at(message.take()).get();
      of_job.resize(static_cast<size_t>(message.take()));
      for (decoding::RowStep& step : of_job)
        for (int32_t* number : {&step.row, &step.token, &step.position, &step.source})
          *number = static_cast<int32_t>(message.take());
      jobs.push_back({.rows = caches, .steps = of_job, .sampling_request = nullptr});
    }
    network.step(jobs);
  }
  void run(int64_t command, Message& message) {
    if (command == kRead) {
      const std::vector<Tokens> tokens = message.take_inputs();
      for (auto& input : network.read(pointers_to(tokens))) inputs[next++] = std::move(input);
    } else if (command == kEncode) {
      const std::vector<Tokens> tokens = message.take_inputs();
      network.encode(pointers_to(tokens));
    } else if (command == kRows) {
      const InputCache& input = *inputs.at(message.take());
      RowLimits limits;
      limits.rows = message.take();
      limits.max_length = message.take();
      rows[next++] = network.rows(input, limits);
    } else {
      step(message);
    }
  }
};

}  // namespace

std::unique_ptr<ServedNetwork> led_network(std::unique_ptr<ServedNetwork> network,
                                           SharedMemoryGroup& group) {
  return std::make_unique<LedNetwork>(std::move(network), group);
}

void follow(ServedNetwork& network, SharedMemoryGroup& group) {
  Follower follower{network, {}, {}};
  while (true) {
    Message message(group.of_leader(""));
    const int64_t command = message.take();
    follower.forget(message);
    if (command == kEnd) return;
    follower.run(command, message);
  }
}

}  // namespace quintet::serving
