#pragma once
// What rows need of a job's inputs, made once and shared by all jobs with the same inputs while any
// of them runs: cross-attention's keys and values, or the cache of a decoder-only network's prefix.

#include <map>
#include <memory>
#include <vector>

#include "models/decoding/cross_keys.h"
#include "models/serving/paged_rows.h"

namespace quintet::serving {

/// Memory of caches, promised before it is taken. Used by one thread.
struct MemoryBudget {
  int64_t limit = 0, promised = 0;  // bytes
  bool fits(int64_t bytes) const { return promised + bytes <= limit; }
};

class EncodedInput {
 public:
  EncodedInput(MemoryBudget& budget, int64_t bytes) : budget_(budget), bytes_(bytes) {
    budget_.promised += bytes_;
  }
  ~EncodedInput() { budget_.promised -= bytes_; }
  EncodedInput(const EncodedInput&) = delete;
  EncodedInput& operator=(const EncodedInput&) = delete;

  std::vector<SharedKeys> cross;  // [layers, heads]
  std::vector<float*> prefix;     // places of all tokens but the last, which rows read again
  std::unique_ptr<float, Pages::Free> cross_memory;
  std::vector<Pages::Page> pages;  // of the prefix

 private:
  MemoryBudget& budget_;
  const int64_t bytes_;
};

class EncodedInputs {
 public:
  using Tokens = std::vector<int32_t>;
  /// `bidirectional`: tokens of a decoder-only network's prefix see each other.
  EncodedInputs(const decoding::PackedNetwork& network, const Pages& pages, MemoryBudget& budget,
                bool bidirectional)
      : network_(network), pages_(pages), budget_(budget), bidirectional_(bidirectional) {}

  /// Bytes that inputs take, and whether they are there.
  int64_t bytes(const Tokens& inputs) const;
  bool has(const Tokens& inputs) const;
  /// One pass over those that are not there yet, without padding. Tokens must be in the vocabulary.
  std::vector<std::shared_ptr<const EncodedInput>> get(std::span<const Tokens* const> inputs);
  /// The encoder's output after its final norm, [tokens, embed] each.
  std::vector<std::vector<float>> encode(std::span<const Tokens* const> inputs);

  /// Tokens that went through the network, and how often inputs were there already.
  int64_t tokens_read() const { return tokens_read_; }
  int64_t shared() const { return shared_; }

 private:
  std::vector<float> encoder_output(std::span<const Tokens* const> inputs,
                                    const decoding::Sequences& all) const;
  std::shared_ptr<EncodedInput> make(const Tokens& inputs) const;
  void fill(std::span<const Tokens* const> inputs,
            std::span<const std::shared_ptr<EncodedInput>> made) const;

  const decoding::PackedNetwork& network_;
  const Pages& pages_;
  MemoryBudget& budget_;
  const bool bidirectional_;
  std::map<Tokens, std::weak_ptr<const EncodedInput>> known_;
  int64_t tokens_read_ = 0, shared_ = 0;
};

}  // namespace quintet::serving
