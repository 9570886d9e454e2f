#pragma once
// Requests of every kind, and what must be the same of two answers to one.

#include <bit>
#include <random>

#include "tests/serving/serving_fixture.h"

namespace quintet::testing {

/// A request of any kind, made anew each time it is run.
struct RequestCase {
  TokenList inputs;
  DecodingRequest request;
  TokenList targets;     // not empty: scored
  bool encoded = false;  // only encoded

  Job job(int64_t vocab) const {
    if (encoded) {
      Job job;
      job.inputs = inputs;
      return job;
    }
    if (targets.empty()) return generation_job(inputs, request, vocab);
    Job job;
    job.inputs = inputs;
    job.rows = 1;
    job.max_length = std::ssize(targets);
    job.search = decoding::start_scoring(targets, vocab, 2,
                                         {.token = inputs.front() == 0 ? inputs.back() : 0});
    return job;
  }
};

/// Makes requests of every kind, at random.
class Asking {
 public:
  Asking(uint32_t seed, const TinyNetwork& network)
      : random_(seed),
        vocab_(network.spec().vocab_size),
        decoder_only_(network.spec().decoder_only()) {}

  RequestCase ask() {
    RequestCase request_case;
    if (decoder_only_) request_case.inputs.push_back(0);
    for (int64_t n = 1 + number(12); n-- > 0;) request_case.inputs.push_back(token());
    request_case.request.rules.max_new_tokens = 1 + number(20);
    request_case.request.rules.eos_ids = {1};
    const int64_t kind = number(decoder_only_ ? 5 : 6);
    if (kind == 1) request_case.request.num_beams = 2 + number(5);
    if (kind == 2 || kind == 3) {
      request_case.request.sampling = {.temperature = 0.5f + static_cast<float>(number(3)),
                                       .top_p = kind == 3 ? 0.8f : 1.0f,
                                       .seed = static_cast<uint64_t>(number(1000)),
                                       .alternatives = number(4)};
      request_case.request.num_return_sequences = 1 + number(4);
    }
    if (kind == 4)
      for (int64_t n = 1 + number(10); n-- > 0;) request_case.targets.push_back(token());
    request_case.encoded = kind == 5;
    return request_case;
  }
  int64_t number(int64_t below) { return static_cast<int64_t>(random_() % below); }

 private:
  int32_t token() { return static_cast<int32_t>(2 + number(vocab_ - 2)); }
  std::mt19937 random_;
  const int64_t vocab_;
  const bool decoder_only_;
};

inline void expect_same_bits(const Ended& alone, const Ended& mixed) {
  ASSERT_TRUE(alone.over && mixed.over);
  ASSERT_EQ(mixed.error, nullptr);
  EXPECT_EQ(alone.encoded, mixed.encoded);
  ASSERT_EQ(alone.results.size(), mixed.results.size());
  const auto bits = [](float x) { return std::bit_cast<uint32_t>(x); };
  for (size_t i = 0; i < alone.results.size(); ++i) {
    EXPECT_EQ(alone.results[i].ids(), mixed.results[i].ids());
    EXPECT_EQ(bits(alone.results[i].score), bits(mixed.results[i].score));
    for (size_t t = 0; t < alone.results[i].tokens.size(); ++t) {
      const auto &a = alone.results[i].tokens[t], &b = mixed.results[i].tokens[t];
      EXPECT_EQ(bits(a.model_log_prob), bits(b.model_log_prob));
      ASSERT_EQ(a.top.size(), b.top.size());
      for (size_t k = 0; k < a.top.size(); ++k)
        EXPECT_EQ(bits(a.top[k].log_prob), bits(b.top[k].log_prob));
    }
  }
}

}  // namespace quintet::testing
