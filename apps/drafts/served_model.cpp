#include "apps/drafts/served_model.h"

#include "apps/model/predictor.h"

namespace quintet {
namespace {

void check_assistant(const TextModel& assistant, const TextModel& model) {
  const std::string flag = assistant.trained().model_dir.string();
  QT_CHECK(
      !assistant.configured().model->spec().encoder_only(),
      "--assistant_model={}: it is an encoder alone and guesses nothing; name a model that answers",
      flag);
  QT_CHECK(
      assistant.decoder_only() == model.decoder_only(),
      "--assistant_model={}: it is {}, and the model is not; an assistant must be of the model's "
      "kind",
      flag, assistant.decoder_only() ? "a decoder alone" : "an encoder and a decoder");
  const int64_t own = assistant.configured().model->vocab_size(),
                wanted = model.configured().model->vocab_size();
  QT_CHECK(
      own == wanted,
      "--assistant_model={}: its vocabulary has {} ids, the model's {}; an assistant must have "
      "the same vocabulary",
      flag, own, wanted);
  QT_CHECK(model.targets() == nullptr || assistant.targets() == nullptr ||
               *model.targets() == *assistant.targets(),
           "--assistant_model={}: its vocabulary is {}, the model's {}; an assistant must have the "
           "same vocabulary",
           flag, assistant.targets()->description(), model.targets()->description());
}

}  // namespace

int64_t cached_token_bytes(const ModelSpec& spec, CacheType type) {
  const LayerConfig& layer = spec.decoder.layer;
  const int64_t number = Device::current().is_cpu() ? 4 : size_of(dtype_from_name(spec.dtype));
  return 2 * spec.decoder.num_layers *
         (type == CacheType::native ? layer.kv_width() * number
                                    : layer.kv_width() + 4 * layer.kv_heads());
}

ServedModel served_model(const TextModel& model, std::optional<WeightType> type,
                         const serving::EngineOptions& options, SharedMemoryGroup* ranks) {
  BaseModel& trained = *model.configured().model;
  const Weights weights = weights_to_generate(type, model.trained().reader, ranks);
  ServedModel served;
  if (Device::current().is_cpu()) {
    served.packed = pack(trained, weights);
    served.network = serving::cpu_network(*served.packed, options);
  } else {
    served.network = serving::gpu_network(trained, options, inference_weights(trained, weights));
  }
  drop_packed(trained, weights);  // what serves is a copy: files may change now
  return served;
}

Drafting drafting_of(const DraftFlags& flags, const TextModel& model,
                     std::optional<WeightType> type, serving::EngineOptions& options) {
  if (flags.tokens() == 0) return {};
  if (flags.assistant_model.empty()) return {{}, {}, serving::prompt_lookup(model.decoder_only())};
  Drafting drafting;
  drafting.assistant = std::make_unique<TextModel>(flags.assistant_model, gin::CommandLine(), true);
  const TextModel& assistant = *drafting.assistant;
  check_assistant(assistant, model);
  serving::EngineOptions own = options;
  const int64_t part = cached_token_bytes(assistant.configured().model->spec(), options.cache_type),
                all =
                    part + cached_token_bytes(model.configured().model->spec(), options.cache_type);
  own.memory_bytes = static_cast<int64_t>(static_cast<double>(options.memory_bytes) *
                                          static_cast<double>(part) / static_cast<double>(all));
  options.memory_bytes -= own.memory_bytes;
  own.bidirectional_prefix = assistant.configured().model->spec().inputs_bidirectional_attention;
  ServedModel served = served_model(assistant, type, own, nullptr);
  drafting.packed = std::move(served.packed);
  drafting.drafter = serving::network_drafter(std::move(served.network), own);
  return drafting;
}

}  // namespace quintet
