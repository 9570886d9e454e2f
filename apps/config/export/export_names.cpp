#include "apps/config/export/export_names.h"

#include "runtime/base/check.h"

namespace quintet {
namespace {

/// What save names and calls itself; here its parameters alone are looked at.
void add_named(gin::Registry& registry, const std::string& name, std::vector<gin::Param> params) {
  registry.add("t5x.export_lib." + name, std::move(params),
               [name](const gin::Arguments&) -> gin::Value {
                 fail(ExitCode::kUsage, "{} is used as @ without ()", name);
               });
}

/// Functions that make requests into features, and these into answers.
void add_functions(gin::Registry& registry) {
  const gin::Value none;
  const std::vector<gin::Param> of_save = {{"batch_size", none},
                                           {"output_features", none},
                                           {"task_feature_lengths", none},
                                           {"tokenized_inputs", none}};
  std::vector<gin::Param> preprocessor = of_save, from_task = of_save, decoder = of_save;
  preprocessor.insert(
      preprocessor.end(),
      {{"input_tensor_name", "text_batch"}, {"split_separator", none}, {"bucket_keys", none}});
  add_named(registry, "create_preprocessor", std::move(preprocessor));
  from_task.insert(from_task.end(), {{"model", none},
                                     {"task_name", ""},
                                     {"serialized_examples", true},
                                     {"run_precache", false},
                                     {"input_tensor_name", "text_batch"}});
  add_named(registry, "create_preprocessor_from_task", std::move(from_task));
  decoder.erase(decoder.begin());  // T5X's has no batch_size
  decoder.emplace_back("input_feature", "inputs");
  add_named(registry, "create_decoder_preprocessor", std::move(decoder));
  add_named(registry, "create_inference_function",
            {{"decoding_state_callback_fn", none},
             {"model_fn_extra_kwargs", none},
             {"jax2tf_disable_platform_checks", false},
             {"output_len", none}});
}

}  // namespace

void register_export(gin::Registry& registry,
                     std::function<gin::Value(const gin::Arguments&)> run) {
  const gin::Value none;
  registry.add(kSave,
               {{"model"},
                {"inference_mode"},
                {"restore_checkpoint_cfg"},
                {"exportable_module_cls"},
                {"create_preprocessor_fn", none},
                {"create_inference_function_fn", none},
                {"create_postprocessor_fn", none},
                {"partitioner"},
                {"create_decoding_state_callback_fn", none},
                {"output_features"},
                {"task_feature_lengths"},
                {"batch_size"},
                {"output_dir"},
                {"model_name"},
                {"warmup_examples", none},
                {"tokenized_inputs", false},
                {"write_warmup_example_fn", none},
                {"mixture_or_task_name", none},
                {"validation_examples", none},
                {"native_lowering", true},
                {"native_lowering_platforms", none},
                {"enable_xla", true},
                {"decode_outputs", none},
                {"trailing_shapes", none},
                {"output_vocab_feature_name", "targets"},
                {"signature_name", "serving_default"},
                {"create_polymorphic_shapes_fn", none}},
               std::move(run));
  add_named(registry, "ExportableModule",
            {{"num_batch_threads", 8},
             {"max_enqueued_batches", 64},
             {"batch_timeout_micros", 1'000'000},
             {"max_batch_size", none},
             {"allowed_batch_sizes", none},
             {"jit_compile", true},
             {"use_batch_function", false},
             {"use_gpu", false},
             {"enable_large_batch_splitting", true}});
  add_functions(registry);
  add_named(registry, "create_postprocessor",
            {{"decode_outputs", none},
             {"output_feature_names", none},
             {"add_token_length_to_output", false}});
  add_named(registry, "create_batch_polymorphic_shapes",
            {{"create_fake_input_fn", none}, {"overrides", none}});
  add_named(registry, "write_warmup_examples",
            {{"generate_examples_fn", none},
             {"input_tensor_name", "text_batch"},
             {"decoder_params_spec", none},
             {"request_to_prediction_log", none},
             {"input_tensor_dtype", none}});
}

void register_precompile(gin::Registry& registry,
                         std::function<gin::Value(const gin::Arguments&)> run) {
  registry.add(kPrecompile,
               {{"model"},
                {"train_dataset_cfg"},
                {"partitioner"},
                {"model_dir"},
                {"random_seed"},
                {"get_dataset_fn", gin::Value()},
                {"verify_matching_vocabs_fn", false, std::nullopt}},  // T5X's: it verifies
               std::move(run));
}

}  // namespace quintet
