#include "apps/convert/compare_models.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "apps/convert/model_source.h"
#include "apps/model/checkpoint_parameters.h"
#include "apps/model/quantized_model.h"

namespace quintet {
namespace {

constexpr int64_t kRows = 2, kInputs = 24, kTargets = 16;
constexpr double kRounding = 2e-5;  // of float32 products in another order, of the largest logit

HostArray random_ids(std::mt19937& draw, int64_t length, int64_t vocab_size) {
  HostArray ids(DType::i32, {kRows, length});
  for (int32_t& id : ids.as<int32_t>())
    id = static_cast<int32_t>(1 + draw() % static_cast<uint32_t>(vocab_size - 1));
  return ids;
}

HostArrays random_batch(const ModelSpec& spec) {
  std::mt19937 draw(20260101);
  HostArrays batch = {{"decoder_input_tokens", random_ids(draw, kTargets, spec.vocab_size)},
                      {"decoder_target_tokens", random_ids(draw, kTargets, spec.vocab_size)}};
  if (!spec.decoder_only())
    batch["encoder_input_tokens"] = random_ids(draw, kInputs, spec.vocab_size);
  return batch;
}

HostArray logits_of(const std::filesystem::path& path, const gin::CommandLine& gin_line) {
  const ModelSource source = open_model_source(path, gin_line, true);
  BaseModel& model = *source.trained.model->model;
  load_for(weights_of({}, source.reader), *source.reader, model);
  return model.logits(random_batch(model.spec())).to_host();
}

}  // namespace

nlohmann::ordered_json compare_models(const std::filesystem::path& source,
                                      const gin::CommandLine& gin_line,
                                      const std::filesystem::path& written, bool rounded) {
  const HostArray before = logits_of(source, gin_line);
  const HostArray after = logits_of(written, {});
  const auto a = before.as<float>(), b = after.as<float>();
  QT_CHECK_AS(ExitCode::kData, before.shape == after.shape, "{}: has logits of another shape",
              written.string());
  double difference = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference =
        std::max(difference, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    largest = std::max(largest, std::abs(static_cast<double>(a[i])));
    QT_CHECK_AS(ExitCode::kData, std::isfinite(b[i]), "{}: logits are not finite",
                written.string());
  }
  QT_CHECK_AS(ExitCode::kData, rounded || difference <= kRounding * largest,
              "{}: is another model than {}: logits of up to {} differ by up to {}",
              written.string(), source.string(), largest, difference);
  return {{"largest_difference", difference}, {"largest_logit", largest}};
}

}  // namespace quintet
