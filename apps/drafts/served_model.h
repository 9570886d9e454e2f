#pragma once
// A model as an engine's network, and what guesses its next tokens.
//
//   Drafting drafting = drafting_of(flags.drafts, model, type, options);   // takes its part of options.memory_bytes
//   ServedModel served = served_model(model, type, options, ranks);
//   serving::Engine engine(std::move(served.network), options, std::move(drafting.drafter));

#include "apps/drafts/draft_flags.h"
#include "apps/model/text_model.h"
#include "kernels/prepacked_matmul/prepacked_matmul.h"
#include "models/serving/drafter.h"
#include "runtime/mesh/shared_memory_group.h"

namespace quintet {

/// Where a model is computed, and what is made of it for that.
struct ServedModel {
  std::unique_ptr<decoding::PackedNetwork> packed;  // null on a GPU; outlives the network
  std::unique_ptr<serving::ServedNetwork> network;
};

/// On the current device, with the model's own parameters dropped. `type`: of weights; none: as the model has them.
ServedModel served_model(const TextModel& model, std::optional<WeightType> type,
                         const serving::EngineOptions& options, SharedMemoryGroup* ranks);

/// What a token takes of the caches of a decoder, on the current device.
int64_t cached_token_bytes(const ModelSpec& spec, CacheType type);

struct Drafting {
  std::unique_ptr<TextModel> assistant;             // null without one
  std::unique_ptr<decoding::PackedNetwork> packed;  // outlives the drafter
  std::unique_ptr<serving::Drafter> drafter;        // null: no drafts
};

/// What the flags ask for beside `model`. An assistant's caches take a part of options.memory_bytes. Throws a usage error for an assistant of another vocabulary or kind.
Drafting drafting_of(const DraftFlags& flags, const TextModel& model,
                     std::optional<WeightType> type, serving::EngineOptions& options);

}  // namespace quintet
