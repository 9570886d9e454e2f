#pragma once
// What a client asks of the engine: inputs, and a search that decodes them
// (models/decoding/request.h), which knows nothing of the batch it is part of.

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/decoding/request.h"
#include "runtime/base/clock.h"

namespace quintet::serving {

struct Outcome {
  std::exception_ptr error = {};               // null: done; or what went wrong, or Refused
  decoding::RequestDecoder* search = nullptr;  // as far as it came; null: it never began
  std::span<const float> encoded = {};         // jobs without a search: [inputs, embed]
};

struct Job {
  /// Of the encoder; of a decoder-only network the prefix, its start token included. Not empty.
  std::vector<int32_t> inputs = {};
  /// Null: the inputs are only encoded. In a decoder-only network positions count from the prefix's
  /// last token, which the search reads first.
  std::unique_ptr<decoding::RequestDecoder> search = nullptr;
  int64_t rows = 0;        // of the search, at most
  int64_t max_length = 0;  // tokens a row reads at most
  /// After each step; called from any thread of the team. What it throws ends this job alone.
  std::function<void(const decoding::RequestDecoder&)> on_step = {};
  /// Called on the engine's thread when the job's caches are free again; once, or again with what
  /// it threw, when it must not throw.
  std::function<void(const Outcome&)> done = {};
  int priority = 0;  // higher goes first; ten seconds of waiting count as one
  std::optional<Clock::time_point> deadline = {};
  std::string client = {};   // whose share of the machine it takes
  int64_t answer_bytes = 0;  // that its results may take: who has most ends when memory is short
};

/// Has a job, whose inputs are there, answer `request`. Its rules see them as inputs of the encoder; of a decoder-only
/// network as what comes before the answer, and the search begins with their last token.
inline void set_search(Job& job, decoding::DecodingRequest request, int64_t vocab_size,
                       bool decoder_only) {
  if (decoder_only) {
    request.prompt = {job.inputs.back()};
    request.context.assign(job.inputs.begin(), job.inputs.end() - 1);
  } else {
    request.inputs = job.inputs;
  }
  job.rows = decoding::rows_of(request);
  job.max_length = std::ssize(request.prompt) - 1 + request.rules.max_new_tokens;
  job.search = start_decoding(std::move(request), vocab_size);
}

/// Why a job was not done.
class Refused : public Error {
 public:
  enum class Reason { kQueueFull, kTooLarge, kClosed, kCancelled, kDeadline };
  Refused(Reason reason, const std::string& message)
      : Error(ExitCode::kUsage, message), reason_(reason) {}
  Reason reason() const { return reason_; }

 private:
  Reason reason_;
};

}  // namespace quintet::serving
