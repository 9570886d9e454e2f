#pragma once
// What rows need of a job's inputs, made once and shared by all jobs with the same inputs while any
// of them runs.

#include <map>

#include "models/serving/served_network.h"

namespace quintet::serving {

/// Memory of caches, reserved before it is taken. Used by one thread.
struct MemoryBudget {
  int64_t limit = 0, reserved = 0;  // bytes
  bool fits(int64_t bytes) const { return reserved + bytes <= limit; }
};

class EncodedInput {
 public:
  EncodedInput(MemoryBudget& budget, int64_t bytes) : budget_(budget), bytes_(bytes) {
    budget_.reserved += bytes_;
  }
  ~EncodedInput() { budget_.reserved -= bytes_; }
  EncodedInput(const EncodedInput&) = delete;
  EncodedInput& operator=(const EncodedInput&) = delete;

  std::unique_ptr<InputCache> cache;

 private:
  MemoryBudget& budget_;
  const int64_t bytes_;
};

class EncodedInputs {
 public:
  EncodedInputs(ServedNetwork& network, MemoryBudget& budget)
      : network_(network), budget_(budget) {}

  /// Whether inputs are there.
  bool has(const Tokens& inputs) const;
  /// One pass over those that are not there yet.
  std::vector<std::shared_ptr<const EncodedInput>> get(std::span<const Tokens* const> inputs);
  /// The encoder's output after its final norm, [tokens, embed] each.
  std::vector<std::vector<float>> encode(std::span<const Tokens* const> inputs);

  /// Tokens that went through the network, and how often inputs were there already.
  int64_t tokens_read() const { return tokens_read_; }
  int64_t shared() const { return shared_; }

 private:
  ServedNetwork& network_;
  MemoryBudget& budget_;
  std::map<Tokens, std::weak_ptr<const EncodedInput>> known_;
  int64_t tokens_read_ = 0, shared_ = 0;
};

}  // namespace quintet::serving
