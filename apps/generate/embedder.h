#pragma once
// Embeddings of texts by a model's encoder, a JSON object a line on stdout: `quintet generate --embed`.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "apps/generate/generator.h"
#include "apps/model/text_model.h"
#include "models/decoding/encoding.h"

namespace quintet {

class Embedder {
 public:
  /// Throws what TextModel throws, and a usage error for a model without encoder.
  Embedder(const GenerateFlags& flags, const gin::CommandLine& line, SharedMemoryGroup* ranks);
  /// Prints one object for each text, in order.
  void answer(std::span<const std::string> texts) const;

 private:
  void embed(std::span<const std::string> texts) const;

  const GenerateFlags& flags_;
  const TextModel model_;
  std::function<std::vector<std::vector<float>>(decoding::EncoderInputs)> encode_;
};

}  // namespace quintet
