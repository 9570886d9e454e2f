#include "apps/finetune/finetune_model.h"

#include "checkpoint/open/open_checkpoint.h"
#include "runtime/base/check.h"
#include "runtime/base/files/path_map.h"

namespace quintet {
namespace {

constexpr const char* kActivations = "ACTIVATION_DTYPE";

/// The configuration class of the network, "t5x.examples.t5.network.T5Config"; empty: a flaxformer one.
std::string network_config(const gin::Config& config) {
  for (const std::string name :
       {"t5x.examples.t5.network.T5Config", "t5x.examples.scalable_t5.network.T5Config",
        "t5x.contrib.gpu.t5.network.T5Config",
        "t5x.examples.decoder_only.network.TransformerConfig"})
    if (config.query(name + ".vocab_size") != nullptr) return name;
  return "";
}

}  // namespace

std::string FinetuneModel::precision_binding() const {
  const gin::Config& config = trained.session->config();
  const std::string name = network_config(config);
  if (!name.empty()) return "network" + name.substr(name.rfind('.')) + ".dtype";
  QT_CHECK(config.query(kActivations) != nullptr,
           "--precision: the model's configuration has neither a network's dtype nor {}; bind it "
           "with --gin.NAME=VALUE",
           kActivations);
  return kActivations;
}

std::string FinetuneModel::precision_import(const std::string& precision) const {
  const std::string name = network_config(trained.session->config());
  if (precision.empty() || name.empty()) return "";
  return fmt::format("from {} import network\n", name.substr(0, name.rfind(".network.")));
}

FinetuneModel open_finetune_model(const std::string& path, const gin::CommandLine& line) {
  FinetuneModel model;
  gin::CommandLine of_model = line;
  of_model.bindings.clear();  // they are the run's
  model.trained = open_trained_model(path, of_model, Load::nothing);
  const gin::Config& config = model.trained.session->config();
  QT_CHECK(config.query("MODEL") != nullptr,
           "{}: its configuration binds no MODEL; name a gin file that does with --gin_file", path);
  model.includes = line.files.empty() ? std::vector{model.trained.config.string()} : line.files;
  for (std::string& file : model.includes)  // names of shipped files stay as they are
    if (std::filesystem::exists(file)) file = std::filesystem::absolute(file).string();
  model.checkpoint = std::filesystem::absolute(find_checkpoint(local_path(path))).string();
  model.class_name = model.trained.model->name;
  model.has_vocabulary_macro = config.query("VOCABULARY") != nullptr;
  return model;
}

}  // namespace quintet
