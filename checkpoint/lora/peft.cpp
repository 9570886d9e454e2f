#include "checkpoint/lora/peft.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "checkpoint/arrays/half.h"
#include "checkpoint/huggingface/names.h"
#include "checkpoint/huggingface/weights_files.h"
#include "checkpoint/safetensors.h"
#include "runtime/base/check.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/formats/json.h"

namespace quintet {
namespace {

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kWeights = "adapter_model.safetensors";
constexpr std::string_view kPrefix = "base_model.model.", kSuffix = ".weight";
constexpr const char* kMarks = "quintet_base_marks";  // in the metadata of the weights

using Modules = std::map<std::string, std::string>;

/// Of each dense kernel of a T5's layers the module that transformers has for it: "encoder.block.0.layer.0.SelfAttention.q".
Modules modules_of(const CheckpointReader& base) {
  const auto& tensors = base.tensors();
  const auto has = [&](const std::string& text) {
    return std::ranges::any_of(
        tensors, [&](const auto& one) { return one.first.find(text) != std::string::npos; });
  };
  const auto layers = [&](const char* stack) {
    int64_t count = 0;
    while (has(fmt::format("/{}/layers_{}/", stack, count))) ++count;
    return count;
  };
  huggingface::Config config;
  config.model_type = "t5";
  config.num_layers = layers("encoder");
  config.num_decoder_layers = layers("decoder");
  config.gated = has("/wi_0/");
  Modules modules;
  if (!has("/encoder/")) return modules;  // transformers has no decoder alone
  for (const huggingface::MappedTensor& tensor : huggingface::mapped_tensors(config, false))
    if (tensor.name.ends_with("/kernel"))
      modules[parameter_key(tensor.name)] =
          tensor.sources[0].substr(0, tensor.sources[0].size() - kSuffix.size());
  return modules;
}

std::string tensor_of(const std::string& module, const char* matrix) {
  return fmt::format("{}{}.{}{}", kPrefix, module, matrix, kSuffix);
}

/// What of the configuration changes the product and is not computed here.
void check_supported(const Json& config) {
  const auto expect = [&](const char* field, bool is_fine, const char* wanted) {
    QT_CHECK_AS(ExitCode::kData, is_fine,
                "{}.{}: expected {}, found {}; merge the adapter with PEFT", config.path(), field,
                wanted, config[field].raw().dump());
  };
  expect("peft_type", config["peft_type"].as_string() == "LORA", "\"LORA\"");
  for (const char* flag : {"use_dora", "lora_bias", "fan_in_fan_out", "use_qalora", "use_bdlora"})
    if (config.has(flag)) expect(flag, config[flag].is_null() || !config[flag].as_bool(), "false");
  if (config.has("bias")) expect("bias", config["bias"].as_string() == "none", "\"none\"");
  for (const char* list : {"modules_to_save", "trainable_token_indices", "target_parameters",
                           "layer_replication", "alora_invocation_tokens", "arrow_config",
                           "kasa_config", "monteclora_config", "velora_config"})
    if (config.has(list))
      expect(list, config[list].is_null() || config[list].raw().empty(), "null");
  if (!config.has("init_lora_weights")) return;
  const Json initial = config["init_lora_weights"];  // others change the base's weights
  expect("init_lora_weights",
         initial.is_bool() || initial.as_string() == "gaussian" ||
             initial.as_string() == "orthogonal" || initial.as_string() == "eva",
         "true, false, \"gaussian\", \"orthogonal\" or \"eva\"");
}

/// PEFT's rank_pattern and alpha_pattern: the first expression that matches the module's end, else `other`.
double by_pattern(const Json& config, const char* field, const std::string& module, double other) {
  if (!config.has(field)) return other;
  for (const auto& [pattern, value] : config[field].members()) try {
      if (std::regex_match(module, std::regex(fmt::format("(.*\\.)?({})", pattern))))
        return value.as_double();
    } catch (const std::regex_error& error) {
      fail(ExitCode::kData, "{}.{}: '{}' is no regular expression: {}", config.path(), field,
           pattern, error.what());
    }
  return other;
}

HostArray transposed(const HostArray& matrix) {
  const int64_t rows = matrix.shape[0], columns = matrix.shape[1];
  HostArray out(DType::f32, {columns, rows});
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      out.as<float>()[static_cast<size_t>(j * rows + i)] =
          matrix.as<float>()[static_cast<size_t>(i * columns + j)];
  return out;
}

/// [out, in] of PyTorch as [in, out] in float32; takes it from `arrays`.
HostArray take_matrix(HostArrays& arrays, const std::string& name, const std::string& where) {
  const auto found = arrays.find(name);
  QT_CHECK_AS(ExitCode::kData, found != arrays.end(), "{}: has no tensor '{}'", where, name);
  HostArray array = std::move(found->second);
  arrays.erase(found);
  QT_CHECK_AS(ExitCode::kData,
              array.shape.size() == 2 && is_floating(array.dtype) && array.dtype != DType::f64,
              "{}: tensor '{}': expected a matrix of float32, bfloat16 or float16", where, name);
  return transposed(as_float32(std::move(array)));
}

/// The ends of the adapted modules, "q" and "v", if they name these and no others; else all in full.
std::vector<std::string> target_modules(const Modules& all, const std::set<std::string>& adapted) {
  const auto end_of = [](const std::string& module) {
    return module.substr(module.rfind('.') + 1);
  };
  std::set<std::string> ends;
  for (const std::string& module : adapted) ends.insert(end_of(module));
  for (const auto& [kernel, module] : all)
    if (ends.contains(end_of(module)) && !adapted.contains(module))
      return {adapted.begin(), adapted.end()};
  return {ends.begin(), ends.end()};
}

}  // namespace

bool has_peft(const std::filesystem::path& folder) {
  std::error_code error;
  return std::filesystem::is_regular_file(folder / kConfig, error);
}

bool is_peft(const std::filesystem::path& folder) {
  return has_peft(folder) && !huggingface::WeightsFiles::are_in(folder);
}

std::string peft_base(const std::filesystem::path& folder) {
  const Json config = Json::read(folder / kConfig);
  const char* field = "base_model_name_or_path";
  return !config.has(field) || config[field].is_null() ? "" : config[field].as_string();
}

Adapter read_peft(const std::filesystem::path& folder, const CheckpointReader& base) {
  const Json config = Json::read(folder / kConfig);
  check_supported(config);
  const std::string where = (folder / kWeights).string();
  SafetensorsFile file = read_safetensors_file(folder / kWeights);
  Adapter adapter{folder, peft_base(folder), {}, {}};
  if (const auto marks = file.metadata.find(kMarks); marks != file.metadata.end())
    for (const auto& [kernel, sum] : Json::parse(marks->second, where + ": " + kMarks).members())
      adapter.marks[kernel] = sum.as_double();
  const bool by_root = config.has("use_rslora") && config["use_rslora"].as_bool();
  for (const auto& [kernel, module] : modules_of(base)) {
    const std::string a = tensor_of(module, "lora_A");
    if (!file.arrays.contains(a)) continue;
    LowRankMatrices& matrices =
        adapter.kernels[kernel] = {take_matrix(file.arrays, a, where),
                                   take_matrix(file.arrays, tensor_of(module, "lora_B"), where)};
    const auto rank = static_cast<double>(matrices.rank());
    const double alpha =
        by_pattern(config, "alpha_pattern", module, config["lora_alpha"].as_double());
    const double said = by_pattern(config, "rank_pattern", module, config["r"].as_double());
    QT_CHECK_AS(ExitCode::kData, rank == said && rank > 0,
                "{}: tensor '{}' has rank {}, {} says {}", where, a, rank, config.path(), said);
    matrices.alpha = by_root ? alpha * std::sqrt(rank) : alpha;
  }
  QT_CHECK_AS(ExitCode::kData, file.arrays.empty(),
              "{}: tensor '{}' adapts no dense kernel of {}: expected lora_A and lora_B of modules "
              "such as encoder.block.0.layer.0.SelfAttention.q",
              where, file.arrays.begin()->first, base.folder().string());
  return adapter;
}

void write_peft(const std::filesystem::path& folder, const Adapter& adapter,
                const CheckpointReader& base) {
  const Modules modules = modules_of(base);
  const std::string where = adapter.folder.string();
  HostArrays arrays;
  std::set<std::string> adapted;
  const LowRankMatrices& first = adapter.kernels.begin()->second;
  nlohmann::ordered_json ranks = nlohmann::ordered_json::object(), alphas = ranks;
  for (const auto& [kernel, matrices] : adapter.kernels) {
    const auto module = modules.find(kernel);
    QT_CHECK_AS(ExitCode::kData, module != modules.end(),
                "{}: adapts {}, which a T5 of transformers has not: PEFT has no place for it",
                where, kernel);
    adapted.insert(module->second);
    arrays[tensor_of(module->second, "lora_A")] = transposed(matrices.a);
    arrays[tensor_of(module->second, "lora_B")] = transposed(matrices.b);
    if (matrices.rank() != first.rank()) ranks[module->second] = matrices.rank();
    if (matrices.alpha != first.alpha) alphas[module->second] = matrices.alpha;
  }
  const nlohmann::ordered_json config = {
      {"peft_type", "LORA"},
      {"task_type", modules_of(base).contains(parameter_key("decoder/layers_0/mlp/wo/kernel"))
                        ? "SEQ_2_SEQ_LM"
                        : "FEATURE_EXTRACTION"},
      {"base_model_name_or_path", adapter.base},
      {"r", first.rank()},
      {"lora_alpha", first.alpha},
      {"lora_dropout", 0.0},
      {"target_modules", target_modules(modules, adapted)},
      {"rank_pattern", ranks},
      {"alpha_pattern", alphas},
      {"bias", "none"},
      {"fan_in_fan_out", false},
      {"inference_mode", true}};
  SafetensorsMetadata metadata{{"format", "pt"}};
  if (!adapter.marks.empty()) metadata[kMarks] = nlohmann::json(adapter.marks).dump();
  atomic_write_file(folder / kConfig, config.dump(2) + "\n");
  write_safetensors(folder / kWeights, arrays, metadata);
}

void check_peft(const std::filesystem::path& folder, const Adapter& written,
                const CheckpointReader& base) {
  const Adapter found = read_peft(folder, base);
  QT_CHECK_AS(ExitCode::kDisk,
              std::ranges::equal(found.kernels, written.kernels,
                                 [](const auto& x, const auto& y) {
                                   const LowRankMatrices &a = x.second, &b = y.second;
                                   return x.first == y.first && a.alpha == b.alpha &&
                                          a.a.shape == b.a.shape && a.a.bytes == b.a.bytes &&
                                          a.b.shape == b.b.shape && a.b.bytes == b.b.bytes;
                                 }),
              "{}: held other matrices when it was read back: failing disk or memory?",
              (folder / kWeights).string());
}

}  // namespace quintet
