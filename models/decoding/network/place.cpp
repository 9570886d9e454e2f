#include "models/decoding/network/place.h"

#include <cstring>
#include <memory>
#include <regex>

#include "runtime/base/check.h"
#include "runtime/base/host_array.h"

namespace quintet::decoding {

Place place_of(const StackSpec& stack, const std::string& name) {
  static const std::regex kMatrix("(.*/layers_[0-9]+/)(?:self_attention|mlp)/([a-z_0-9]+)/kernel");
  std::smatch match;
  if (stack.dense_layers.form != LayerForm::fused || !std::regex_match(name, match, kMatrix))
    return {.parameter = name};
  const LayerConfig& layer = stack.layer;
  const auto [d, mlp, gate] = layer.fused_widths();
  struct Part {
    std::string matrix, fused;
    int64_t offset, width, of, heads;  // of: all columns of a head
    const char* axis;
  };
  const int64_t in = d + mlp + gate, h = layer.num_heads;
  const Part parts[] = {{"query", "q_wi_fused", 0, d, in, h, axis::kJoinedKv},
                        {"wi", "q_wi_fused", d, mlp, in, h, axis::kMlp},
                        {"wi_0", "q_wi_fused", d, mlp, in, h, axis::kMlp},
                        {"wi_1", "q_wi_fused", d + mlp, mlp, in, h, axis::kMlp},
                        {"key", "kv_fused", 0, d, 2 * d, 1, axis::kKv},
                        {"value", "kv_fused", d, d, 2 * d, 1, axis::kKv},
                        {"out", "o_wo_fused", 0, d, d + mlp, h, axis::kJoinedKv},
                        {"wo", "o_wo_fused", d, mlp, d + mlp, h, axis::kMlp}};
  for (const Part& part : parts) {
    if (part.matrix != match[2]) continue;
    const Axis embed{axis::kEmbed, layer.emb_dim}, own{part.axis, part.heads * part.width};
    const bool rows = part.fused == "o_wo_fused";
    const int64_t inner = rows ? layer.emb_dim : 1;
    return {.parameter = fmt::format("{}{}/kernel", match[1].str(), part.fused),
            .axes = rows ? Axes{own, embed} : Axes{embed, own},
            .count = rows ? part.heads : layer.emb_dim * part.heads,
            .unit = part.width * inner,
            .stride = part.of * inner,
            .offset = part.offset * inner};
  }
  return {.parameter = name};
}

bool is_shared(const LayerConfig& layer, std::string_view projection) {
  return layer.shares_kv() && projection != "query";
}

ParameterSource by_matrix(const ModelSpec& spec, const ParameterSource& parameters) {
  const StackSpec stack = spec.decoder;
  if (stack.dense_layers.form != LayerForm::fused || !parameters) return parameters;
  const auto kept = std::make_shared<HostArray>();
  return [stack, parameters, kept](const std::string& name) -> StoredParameter {
    const Place place = place_of(stack, name);
    const StoredParameter stored = parameters(place.parameter);
    if (!place.is_part()) return stored;
    const int64_t bytes = size_of(stored.values.dtype);
    QT_CHECK_AS(ExitCode::kData,
                bytes > 1 && stored.values.elements() == place.count * place.stride,
                "parameter {}: expected {} values of float32 or bfloat16, found {} of {}; does the "
                "configuration belong to this checkpoint?",
                place.parameter, place.count * place.stride, stored.values.elements(),
                name_of(stored.values.dtype));
    *kept = HostArray(stored.values.dtype, {place.axes[0].size, place.axes[1].size});
    const auto* from = static_cast<const std::byte*>(stored.values.pointer) + place.offset * bytes;
    for (int64_t i = 0; i < place.count; ++i)
      std::memcpy(kept->bytes.data() + i * place.unit * bytes, from + i * place.stride * bytes,
                  static_cast<size_t>(place.unit * bytes));
    View view = View::of<float>(nullptr, kept->shape);
    view.pointer = kept->bytes.data();
    view.dtype = kept->dtype;
    return view;
  };
}

}  // namespace quintet::decoding
