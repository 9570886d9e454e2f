#pragma once
// How much the engine takes on.

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/decode_attention/cache_type.h"
#include "models/serving/work_signal.h"

namespace quintet::serving {

struct EngineOptions {
  int64_t memory_bytes = int64_t{1} << 30;  // of caches
  int64_t max_rows = 64;                    // of a step
  int64_t max_encoder_tokens = 1024;        // of one pass, unless a single input is longer
  int64_t max_length = 4096;                // tokens of a row, with the prefix
  int64_t max_waiting = 256;                // jobs
  int64_t page_tokens = 16;
  CacheType cache_type = CacheType::native;
  int64_t draft_tokens = 0;  // of a row and a step, at most (models/serving/drafter.h); 0: none
  bool bidirectional_prefix = false;  // decoder only: prefix tokens see each other
  /// The same for all engines that one thread runs (run_engines); null: the engine makes its own.
  std::shared_ptr<WorkSignal> signal = {};
  /// Called before each encoder pass and step; what it throws counts as a failure of the device.
  std::function<void()> before_step = {};

  /// Throws a usage error for sizes that are not positive.
  void check() const;
};

}  // namespace quintet::serving
