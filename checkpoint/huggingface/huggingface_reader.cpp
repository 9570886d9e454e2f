#include "checkpoint/huggingface/huggingface_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "checkpoint/arrays/half.h"
#include "runtime/base/check.h"

namespace quintet::huggingface {
namespace {

constexpr const char* kHead = "lm_head.weight";
constexpr const char* kTables[] = {"shared.weight", "encoder.embed_tokens.weight",
                                   "decoder.embed_tokens.weight"};
// transformers made this in early versions and ignores it since: cross-attention has no bias.
constexpr const char* kNeverUsed =
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";

bool is_readable(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

}  // namespace

Reader::Reader(std::filesystem::path folder)
    : CheckpointReader(std::move(folder)), config_(read_config(folder_)), files_(folder_) {
  check_decoder();
  config_.separate_embeddings = has_separate_embeddings();
  if (!config_.separate_embeddings) check_embeddings();
  const bool untied = !config_.encoder_only() && has_untied_projection();
  tied_ = config_.encoder_only() || (!untied && config_.scale_decoder_outputs);
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config_.d_model)));
  for (MappedTensor tensor : mapped_tensors(config_, !tied_)) {
    float factor = 1;
    if (tensor.sources.front() == kHead) {
      if (config_.scale_decoder_outputs) factor = scale;
      if (!untied) tensor.sources = {kTables[0]};
    }
    add(tensor, factor);
  }
  check_nothing_left();
}

std::vector<std::pair<std::string, std::string>> Reader::details() const {
  return {{"model_type", config_.model_type},
          {"architecture", config_.architecture},
          {"weights", files_.format()},
          {"files", std::to_string(files_.files().size())}};
}

std::span<const char* const> Reader::tables() const {
  // transformers 5 ties no table of an untied Switch Transformer, whose layers do not read the shared one.
  const bool apart =
      config_.is_switch() && !config_.tie_word_embeddings && files_.tensors().contains(kTables[1]);
  return std::span(kTables).first(config_.encoder_only() ? 2 : 3).subspan(apart ? 1 : 0);
}

const FileTensor& Reader::embeddings() const {
  for (const char* name : tables())
    if (files_.tensors().contains(name)) return files_.tensors().at(name);
  fail(ExitCode::kData, "{}: has no tensor '{}'; does config.json belong to these weights?",
       folder_.string(), kTables[0]);
}

void Reader::check_decoder() const {
  const auto has = [&](std::string_view side) {  // names are in order
    const auto first = files_.tensors().lower_bound(std::string(side));
    return first != files_.tensors().end() && first->first.starts_with(side);
  };
  QT_CHECK_AS(ExitCode::kData, config_.encoder_only() || has("decoder.") || !has("encoder."),
              "{}: has an encoder and no decoder; for an encoder alone config.json must say "
              "\"architectures\": [\"T5EncoderModel\"]",
              folder_.string());
}

bool Reader::same(const FileTensor& a, const FileTensor& b) const {
  return a.equals(b, [&] {
    files_.release(a);
    files_.release(b);
  });
}

void Reader::check_embeddings() const {
  const FileTensor& first = embeddings();
  for (const char* name : tables()) {
    const auto found = files_.tensors().find(name);
    if (found == files_.tensors().end() || &found->second == &first) continue;
    QT_CHECK_AS(
        ExitCode::kData, same(found->second, first),
        "{}: tensor '{}' differs from the other embeddings; expected one table for encoder and "
        "decoder",
        folder_.string(), name);
  }
}

bool Reader::has_separate_embeddings() const {
  const auto encoder = files_.tensors().find(kTables[1]),
             decoder = files_.tensors().find(kTables[2]), none = files_.tensors().end();
  return config_.is_switch() && !config_.tie_word_embeddings && !config_.encoder_only() &&
         encoder != none && decoder != none && !same(encoder->second, decoder->second);
}

/// A file of a tied model may have the table again.
bool Reader::has_untied_projection() const {
  const auto head = files_.tensors().find(kHead);
  if (head == files_.tensors().end()) {
    QT_CHECK_AS(ExitCode::kData, config_.tie_word_embeddings || config_.model_type == "mt5",
                "{}: has no tensor '{}', and config.json says tie_word_embeddings = false",
                folder_.string(), kHead);
    return false;
  }
  if (!config_.tie_word_embeddings) return true;
  return !same(head->second, embeddings());
}

void Reader::add(const MappedTensor& tensor, float factor) {
  Source source{.parts = {}, .factor = factor};
  const bool stacked = tensor.sources.size() > 1 || std::ssize(tensor.shape) == 3;
  const std::vector<int64_t> shape(tensor.shape.begin() + (stacked ? 1 : 0), tensor.shape.end());
  for (const std::string& name : tensor.sources) {
    const auto found = files_.tensors().find(name);
    QT_CHECK_AS(ExitCode::kData, name == kTables[0] || found != files_.tensors().end(),
                "{}: has no tensor '{}'; does config.json belong to these weights?",
                folder_.string(), name);
    const FileTensor& theirs = name == kTables[0] ? embeddings() : found->second;
    source.parts.push_back(tensor.transposed ? theirs.transposed() : theirs);
    const FileTensor& part = source.parts.back();
    QT_CHECK_AS(
        ExitCode::kData, part.shape == shape,
        "{}: tensor '{}' has shape {}, config.json asks for {}", folder_.string(), name,
        shape_text(theirs.shape),
        shape_text(tensor.transposed ? std::vector<int64_t>(shape.rbegin(), shape.rend()) : shape));
    QT_CHECK_AS(ExitCode::kData,
                is_readable(part.dtype) && part.dtype == source.parts.front().dtype,
                "{}: tensor '{}' is {}, expected float32, bfloat16 or float16{}", folder_.string(),
                name, name_of(part.dtype), stacked ? ", the same for all experts" : "");
    used_[name] = true;
  }
  const std::string ours = parameter_key(tensor.name);
  tensors_[ours] = {factor == 1 ? source.parts.front().dtype : DType::f32, tensor.shape};
  sources_[ours] = std::move(source);
}

void Reader::check_nothing_left() const {
  std::vector<std::string> left;
  for (const auto& [name, tensor] : files_.tensors()) {
    const bool is_table = name == kHead || std::find(std::begin(kTables), std::end(kTables),
                                                     name) != std::end(kTables);
    const bool other_half = config_.encoder_only() && name.starts_with("decoder.");
    if (!used_.contains(name) && !is_table && !other_half && name != kNeverUsed)
      left.push_back(name);
  }
  constexpr size_t kShown = 3;
  QT_CHECK_AS(ExitCode::kData, left.empty(),
              "{}: {} tensors belong to nothing in a {} of config.json's sizes: '{}'{}",
              folder_.string(), left.size(), config_.model_type,
              fmt::join(left.begin(),
                        left.begin() + static_cast<int64_t>(std::min(left.size(), kShown)), "', '"),
              left.size() > kShown ? ", ..." : "");
}

NotFinite Reader::verify(int part, int parts) const {
  files_.verify(part, parts);
  return {};
}

void Reader::read_region(const TensorRegion& region, std::byte* target) const {
  const Source& source = sources_.at(region.name);
  const auto read_part = [&](const FileTensor& part, const std::vector<int64_t>& origin,
                             const std::vector<int64_t>& sizes, std::byte* to) {
    const auto release = [&] { files_.release(part); };
    if (source.factor == 1) {
      part.copy_region(origin, sizes, to, release);
    } else {
      HostArray stored(part.dtype, sizes);
      part.copy_region(origin, sizes, stored.bytes.data(), release);
      const HostArray floats = as_float32(std::move(stored));
      const auto from = floats.as<float>();
      auto* values = reinterpret_cast<float*>(to);
      for (size_t i = 0; i < from.size(); ++i) values[i] = from[i] * source.factor;
    }
  };
  const bool stacked = region.sizes.size() > source.parts.front().shape.size();
  if (!stacked) return read_part(source.parts.front(), region.origin, region.sizes, target);
  const std::vector<int64_t> origin(region.origin.begin() + 1, region.origin.end());
  const std::vector<int64_t> sizes(region.sizes.begin() + 1, region.sizes.end());
  int64_t bytes = size_of(tensors_.at(region.name).dtype);
  for (const int64_t size : sizes) bytes *= size;
  for (int64_t i = 0; i < region.sizes[0]; ++i)
    read_part(source.parts[static_cast<size_t>(region.origin[0] + i)], origin, sizes,
              target + i * bytes);
}

std::optional<RegionInPlace> Reader::region_in_place(const TensorRegion& region) const {
  const Source& source = sources_.at(region.name);
  const size_t axes = source.parts.front().shape.size(), stack = region.sizes.size() - axes;
  const int64_t number = stack == 0 ? 0 : region.origin[0];
  if (source.factor != 1 || (stack == 1 && region.sizes[0] != 1)) return std::nullopt;
  const FileTensor& part = source.parts[static_cast<size_t>(number)];
  const std::optional<std::span<const std::byte>> bytes = part.region_in_place(
      std::span(region.origin).subspan(stack), std::span(region.sizes).subspan(stack));
  if (!bytes) return std::nullopt;
  RegionInPlace result{.values = bytes->data(), .strides = part.strides, .pages = {}};
  if (stack == 1) result.strides.insert(result.strides.begin(), part.elements());
  result.pages = {const_cast<std::byte*>(bytes->data()),
                  [this, part = *bytes](void*) { files_.release(part); }};
  return result;
}

}  // namespace quintet::huggingface
