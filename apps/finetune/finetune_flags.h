#pragma once
// What `quintet finetune` may be told: the model, the data, and what is to differ from the defaults.

#include <optional>
#include <string>
#include <vector>

#include "apps/flags/lora_flags.h"
#include "apps/flags/result_format.h"
#include "apps/train/training.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quintet {

/// Models below this width have not seen much text: they learn at higher rates, and for longer.
inline constexpr int64_t kNarrow = 512;

struct FinetuneFlags {
  std::string model_dir, output_dir, output_format = "native";
  std::vector<std::string> train, validation, metrics, labels;
  std::string input, target, source_prefix, format;
  std::optional<double> epochs;
  std::optional<int64_t> steps, batch_size, batch_tokens, input_length, target_length, microbatches;
  std::string optimizer, precision, best_metric;
  std::optional<double> learning_rate;
  double dropout = 0.1, label_smoothing = 0, weight_decay = 0, max_grad_norm = 1, layer_decay = 1;
  std::vector<std::string> freeze;
  LoraFlags lora;
  int64_t patience = 6, seed = 0;
  ResultFormat results{"text"};
  TrainingFlags training;

  void add_to(CLI::App& app);
  /// Throws a usage error for flags that are missing or do not go together.
  void check() const;
  bool is_adamw() const { return optimizer == "adamw" || (optimizer.empty() && lora.rank); }
  /// Of a model of this width.
  double peak_learning_rate(int64_t emb_dim) const;
  /// Those that were given of the flags that decide what is trained, one a line: what a resumed run must
  /// have alike.
  std::string given() const;

 private:
  std::vector<const CLI::Option*> deciding_;
};

}  // namespace quintet
