#include "apps/generate/embedder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/generate/token_ids.h"
#include "apps/model/predictor.h"
#include "apps/process/output.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

using JsonText = nlohmann::ordered_json;

JsonText rows_of(std::span<const float> encoded, size_t width) {
  JsonText rows = JsonText::array();
  for (; !encoded.empty(); encoded = encoded.subspan(width))
    rows.push_back(std::vector<float>(encoded.begin(), encoded.begin() + width));
  return rows;
}

}  // namespace

Embedder::Embedder(const GenerateFlags& flags, const gin::CommandLine& line,
                   SharedMemoryGroup* ranks)
    : flags_(flags),
      model_(flags.model_dir, line, flags.ids, ranks == nullptr ? Load::to_generate : Load::part,
             flags.adapter) {
  QT_CHECK(!model_.decoder_only(), "{}: has no encoder, so it has no embeddings", flags.model_dir);
  BaseModel& model = *model_.configured().model;
  const Weights weights =
      weights_to_generate(flags.quantize.type(), model_.trained().reader, ranks);
  const auto encode_with = [](auto network) {
    return [network](decoding::EncoderInputs inputs) { return encode_each(*network, inputs); };
  };
  if (Device::current().is_cpu())
    encode_ = encode_with(std::shared_ptr(pack_encoder(model, weights)));
  else
    encode_ = encode_with(std::make_shared<decoding::GpuWeights>(
        model.spec().encoder_alone(), model.parameters(), inference_weights(model, weights)));
  drop_packed(model, weights);
}

void Embedder::answer(std::span<const std::string> texts) const {
  const auto size = static_cast<size_t>(flags_.batch_size);
  for (size_t i = 0; i < texts.size(); i += size) {
    embed(texts.subspan(i, std::min(size, texts.size() - i)));
    flush_output();
  }
}

void Embedder::embed(std::span<const std::string> texts) const {
  const BaseModel& model = *model_.configured().model;
  std::vector<std::vector<int32_t>> ids;
  for (const std::string& text : texts)
    ids.push_back(flags_.ids ? parse_token_ids(text, "an input", model.vocab_size())
                             : model_.encode(text));
  std::vector<const std::vector<int32_t>*> inputs;
  for (const auto& one : ids) inputs.push_back(&one);
  const auto encoded = encode_(inputs);
  const int64_t width = model.spec().emb_dim();
  for (size_t r = 0; r < ids.size(); ++r) {
    JsonText json = flags_.ids ? JsonText{{"input_ids", ids[r]}} : JsonText{{"input", texts[r]}};
    if (flags_.embed == "mean")
      json["embedding"] = decoding::mean_of_rows(encoded[r], width);
    else
      json["embeddings"] = rows_of(encoded[r], static_cast<size_t>(width));
    fmt::print("{}\n", json.dump(-1, ' ', false, JsonText::error_handler_t::replace));
  }
}

}  // namespace quintet
