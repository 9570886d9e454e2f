#include "models/serving/encoded_inputs.h"

namespace quintet::serving {

bool EncodedInputs::has(const Tokens& inputs) const {
  const auto found = known_.find(inputs);
  return found != known_.end() && !found->second.expired();
}

std::vector<std::shared_ptr<const EncodedInput>> EncodedInputs::get(
    std::span<const Tokens* const> inputs) {
  std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
  std::vector<std::shared_ptr<const EncodedInput>> all;
  std::vector<const Tokens*> missing;
  std::vector<std::shared_ptr<EncodedInput>> made;
  for (const Tokens* tokens : inputs) {
    auto& known = known_[*tokens];
    if (auto shared = known.lock()) {
      all.push_back(std::move(shared));
      ++shared_;
      continue;
    }
    missing.push_back(tokens);
    tokens_read_ += std::ssize(*tokens);
    made.push_back(std::make_shared<EncodedInput>(budget_, network_.input_bytes(*tokens)));
    known = made.back();
    all.push_back(made.back());
  }
  if (made.empty()) return all;
  auto caches = network_.read(missing);
  for (size_t i = 0; i < made.size(); ++i) made[i]->cache = std::move(caches[i]);
  return all;
}

std::vector<std::vector<float>> EncodedInputs::encode(std::span<const Tokens* const> inputs) {
  for (const Tokens* tokens : inputs) tokens_read_ += std::ssize(*tokens);
  return network_.encode(inputs);
}

}  // namespace quintet::serving
