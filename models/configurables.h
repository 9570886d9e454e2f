#pragma once
// What gin files may name of models/: networks and models under T5X's names.
//
//   register_models(registry);
//   auto configured =
//       config.call_as<std::shared_ptr<ConfiguredModel>>("models.EncoderDecoderModel");

#include "models/lora.h"
#include "runtime/gin/config.h"
#include "runtime/optim/optimizer.h"

namespace quintet {

/// t5x.models.DecoderParams: of predict_batch_with_aux where it binds none itself.
struct DecoderParams {
  bool return_all_decodes = false;
  int64_t num_decodes = 1;
};

/// What @models.EncoderDecoderModel() gives: a model and what trains and feeds it. Vocabularies
/// stay gin values: models know only their sizes, `data` knows the rest.
struct ConfiguredModel {
  std::shared_ptr<BaseModel> model;
  gin::Value input_vocabulary, output_vocabulary;
  OptimizerPtr optimizer;          // null: the model cannot be trained
  std::optional<LoraConfig> lora;  // trained are adapters alone
  std::string optimizer_where;     // file, line and name of optimizer_def, for messages
  gin::Value decode_fn;            // @decoding.beam_search or the like; None: T5X's default
  DecoderParams default_decoder_params;
  gin::Value feature_converter_cls;     // None: the model's own
  std::string name;                     // registered name, for method bindings
  const gin::Config* config = nullptr;  // where they are looked up

  /// `optimizer`; a usage error where it is null.
  const OptimizerPtr& optimizer_to_train() const;
  /// Declares the adapters that `lora` asks for: for who trains, before parameters have values.
  void prepare_to_train() const;
};

void register_models(gin::Registry& registry);

/// For models registered elsewhere (docs/extend.md): the parameters that models of t5x.models share, behind `own`;
std::vector<gin::Param> with_shared(std::vector<gin::Param> own);
/// the loss arguments among them;
LossOptions loss_options(const gin::Arguments& args);
/// what the configurable is to give: `input` and `output` name its parameters that are vocabularies;
std::shared_ptr<ConfiguredModel> configured(const gin::Arguments& args,
                                            std::shared_ptr<BaseModel> model,
                                            const std::string& input, const std::string& output);
/// and its methods, which predictions and scores read.
void add_model_methods(gin::Registry& registry, const std::string& model);

}  // namespace quintet
