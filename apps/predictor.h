#pragma once
// Predictions with a configured model: the decode function its gin files name, with the arguments bound there.
//
//   Predictor predictor(*configured);                       // packs the parameters as they are now
//   for (int64_t row = 0; row < rows; ++row) use(predictor.predict(batch).best(row));

#include <optional>

#include "models/configurables.h"
#include "models/decoding/predict.h"

namespace quintet {

/// What a verb's flags say over the gin files.
struct DecodeOverrides {
  std::optional<int64_t> beams;          // beam search with so many beams; 1 is greedy
  std::optional<double> temperature;     // sampling; 0 is greedy
  std::optional<int64_t> topk;
  std::optional<double> topp;
  std::optional<int64_t> num_decodes;    // samples an input
  int64_t seed = 0;
};

class Predictor {
 public:
  /// Throws a usage error if the model's decode_fn is not one of ours.
  explicit Predictor(const ConfiguredModel& model, const DecodeOverrides& overrides = {});
  /// `batch`: model features of equal lengths. Tokens end at the first EOS; the best decode is the last.
  decoding::Decodes predict(const HostArrays& batch) const;

 private:
  std::shared_ptr<const BaseModel> model_;  // which device_ reads
  bool decoder_only_ = false;
  std::unique_ptr<decoding::PackedNetwork> network_;  // on the CPU, and of decoder-only models
  std::unique_ptr<decoding::DeviceDecoder> device_;   // on a GPU
  decoding::PredictOptions options_;
};

/// decoding.beam_search and decoding.temperature_sample.
void register_decoding(gin::Registry& registry);

}  // namespace quintet
