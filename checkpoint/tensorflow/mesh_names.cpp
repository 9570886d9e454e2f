#include "checkpoint/tensorflow/mesh_names.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <regex>

#include "checkpoint/checkpoint_reader.h"
#include "runtime/base/check.h"

namespace quintet::tensorflow {
namespace {

struct Slot {
  const char *theirs, *ours;
};
// Longer ones first: _slot_v ends none of the others, but begins them.
constexpr Slot kSlots[] = {
    {"_slot_vr", "v_row"}, {"_slot_vc", "v_col"}, {"_slot_v", "v"}, {"_slot_m", "m"}};

/// A name without its slot, which moves into `slot`.
std::string without_slot(const std::string& name, std::string& slot) {
  for (const Slot& known : kSlots)
    if (name.ends_with(known.theirs)) {
      slot = known.ours;
      return name.substr(0, name.size() - std::string_view(known.theirs).size());
    }
  return name;
}

/// The norm before the n-th sublayer of a block.
const char* norm_name(const std::string& stack, size_t sublayer) {
  static const std::map<std::string, std::vector<const char*>> kNorms = {
      {"encoder", {"pre_attention_layer_norm", "pre_mlp_layer_norm"}},
      {"transformer", {"pre_self_attention_layer_norm", "pre_mlp_layer_norm"}},
      {"decoder",
       {"pre_self_attention_layer_norm", "pre_cross_attention_layer_norm", "pre_mlp_layer_norm"}}};
  const auto& norms = kNorms.at(stack);
  return sublayer < norms.size() ? norms[sublayer] : nullptr;
}

/// What follows "layers_<n>/" of a parameter in sublayer `sublayer` of a block; nullopt: none of T5's.
std::optional<std::string> in_layer(const std::string& stack, size_t sublayer,
                                    const std::string& rest) {
  static const std::regex kAttention("(SelfAttention|EncDecAttention)/([qkvo])");
  static const std::regex kMlp("DenseReluDense/(wi|wo)(_[0-9]+)?/kernel");
  static const std::regex kNorm("(layer|rms)_norm/scale");
  std::smatch match;
  if (rest == "SelfAttention/relative_attention_bias") return "relpos_bias/rel_embedding";
  if (std::regex_match(rest, match, kAttention)) {
    const char* attention = stack == "encoder"       ? "attention"
                            : match.str(1)[0] == 'S' ? "self_attention"
                                                     : "encoder_decoder_attention";
    static const std::map<std::string, const char*> kMatrices = {
        {"q", "query"}, {"k", "key"}, {"v", "value"}, {"o", "out"}};
    return fmt::format("{}/{}/kernel", attention, kMatrices.at(match.str(2)));
  }
  if (std::regex_match(rest, match, kMlp))
    return fmt::format("mlp/{}{}/kernel", match.str(1), match.str(2));
  const char* norm = norm_name(stack, sublayer);
  if (norm != nullptr && std::regex_match(rest, kNorm)) return fmt::format("{}/scale", norm);
  return std::nullopt;
}

/// Of a parameter, below "target/"; nullopt: none of T5's.
std::optional<std::string> parameter(const std::string& name) {
  static const std::regex kBlock(
      "(encoder|decoder|transformer)/block_([0-9]{1,9})/layer_([0-9]{1,9})/(.*)");
  static const std::regex kTop(
      "(encoder|decoder|transformer)/(embedding|(final_layer|rms)_norm/scale|logits/kernel)");
  if (name == "shared/embedding") return "token_embedder/embedding";
  std::smatch match;
  const auto ours = [&] { return match.str(1) == "encoder" ? "encoder" : "decoder"; };
  if (std::regex_match(name, match, kTop)) {
    const std::string what = match.str(2);
    if (what == "embedding") return fmt::format("{}/token_embedder/embedding", ours());
    if (what != "logits/kernel") return fmt::format("{}/{}_norm/scale", ours(), ours());
    if (match.str(1) == "encoder") return std::nullopt;
    return "decoder/logits_dense/kernel";
  }
  if (!std::regex_match(name, match, kBlock)) return std::nullopt;
  const auto rest = in_layer(match.str(1), std::stoul(match.str(3)), match.str(4));
  if (!rest) return std::nullopt;
  return fmt::format("{}/layers_{}/{}", ours(), std::stoul(match.str(2)), *rest);
}

/// Tables that only first layers have are their stack's. One layer more decides for both stacks, as in T5X.
void share_biases(std::map<std::string, std::string>& names) {
  static const std::regex kTable("(.*/)layers_([0-9]+)/(relpos_bias/.*)");
  std::smatch match;
  for (const auto& [theirs, ours] : names)
    if (std::regex_match(ours, match, kTable) && match.str(2) != "0") return;
  for (auto& [theirs, ours] : names)
    if (const std::string all = ours; std::regex_match(all, match, kTable))
      ours = match.str(1) + match.str(3);
}

}  // namespace

std::map<std::string, std::string> mesh_to_ours(const std::vector<std::string>& names,
                                                const std::string& where) {
  std::map<std::string, std::string> mapped;
  std::vector<std::string> unknown;
  for (const std::string& name : names) {
    std::string slot;
    const auto ours = parameter(without_slot(name, slot));
    if (name == "global_step")
      mapped[name] = "state/step";
    else if (!ours)
      unknown.push_back(name);
    else
      mapped[name] = slot.empty() ? parameter_key(*ours)
                                  : fmt::format("state/param_states/{}/{}", *ours, slot);
  }
  constexpr size_t kShown = 3;
  const auto shown = unknown.begin() + static_cast<int64_t>(std::min(unknown.size(), kShown));
  QT_CHECK_AS(ExitCode::kData, unknown.empty(),
              "{}: {} variables are none of T5's in Mesh TensorFlow: '{}'{}", where, unknown.size(),
              fmt::join(unknown.begin(), shown, "', '"), unknown.size() > kShown ? ", ..." : "");
  share_biases(mapped);
  return mapped;
}

}  // namespace quintet::tensorflow
