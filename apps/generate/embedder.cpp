#include "apps/generate/embedder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/generate/token_ids.h"
#include "apps/process/output.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

using JsonText = nlohmann::ordered_json;

/// Rows of [tokens, width], and their mean in double precision.
JsonText rows_of(std::span<const float> encoded, int64_t tokens, int64_t width) {
  JsonText rows = JsonText::array();
  for (int64_t t = 0; t < tokens; ++t) {
    const auto row = encoded.subspan(static_cast<size_t>(t * width), static_cast<size_t>(width));
    rows.push_back(std::vector<float>(row.begin(), row.end()));
  }
  return rows;
}

JsonText mean_of(std::span<const float> encoded, int64_t tokens, int64_t width) {
  std::vector<double> sums(static_cast<size_t>(width), 0);
  for (int64_t t = 0; t < tokens; ++t)
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i] += static_cast<double>(encoded[static_cast<size_t>(t * width) + i]);
  std::vector<float> mean;
  for (const double sum : sums)
    mean.push_back(static_cast<float>(sum / static_cast<double>(tokens)));
  return mean;
}

}  // namespace

Embedder::Embedder(const GenerateFlags& flags, const gin::CommandLine& line)
    : flags_(flags), model_(flags.model_dir, line, flags.ids, Load::all) {
  QT_CHECK(!model_.decoder_only(), "{}: has no encoder, so it has no embeddings", flags.model_dir);
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
  size_t longest = 0;
  for (const std::string& text : texts) {
    ids.push_back(flags_.ids ? parse_token_ids(text, "an input", model.vocab_size())
                             : model_.encode(text));
    longest = std::max(longest, ids.back().size());
  }
  const auto rows = std::ssize(ids);
  HostArray tokens(DType::i32, {rows, static_cast<int64_t>(longest)});
  for (size_t r = 0; r < ids.size(); ++r)
    std::copy(ids[r].begin(), ids[r].end(), tokens.as<int32_t>().begin() + r * longest);
  const HostArray encoded =
      model.encode({{"encoder_input_tokens", tokens}}, {0, rows}, {.dropless = true}).to_host();
  QT_CHECK(encoded.dtype == DType::f32,
           "{}: computes in {}; bind network.T5Config.dtype = 'float32' for embeddings",
           flags_.model_dir, name_of(encoded.dtype));
  const int64_t width = encoded.shape.back();
  for (size_t r = 0; r < ids.size(); ++r) {
    const auto own = encoded.as<float>().subspan(r * longest * static_cast<size_t>(width));
    JsonText json = flags_.ids ? JsonText{{"input_ids", ids[r]}} : JsonText{{"input", texts[r]}};
    json[flags_.embed == "mean" ? "embedding" : "embeddings"] =
        flags_.embed == "mean" ? mean_of(own, std::ssize(ids[r]), width)
                               : rows_of(own, std::ssize(ids[r]), width);
    fmt::print("{}\n", json.dump(-1, ' ', false, JsonText::error_handler_t::replace));
  }
}

}  // namespace quintet
