#include <algorithm>
#include <iterator>

#include "apps/config/export/export_names.h"
#include "apps/config/ineffective/rows.h"

namespace quintet::ineffective {
namespace {

const std::string kLib = "t5x.export_lib.";

Row refused_unless(const char* parameter, const std::string& name, const std::string& reason) {
  return {{kSave}, parameter, kRefused, reason, is_named(kLib + name)};
}

std::vector<Row> rows_of_save() {
  const std::string python = "Python is not run; this step is the program's own",
                    requests = "requests may hold texts or ids, as many as they like",
                    compiled = "nothing is compiled ahead of time";
  const IsMet preprocessors = [](const gin::Value& value, const gin::Config& config) {
    for (const char* name :
         {"create_preprocessor", "create_preprocessor_from_task", "create_decoder_preprocessor"})
      if (is_named(kLib + name)(value, config)) return true;
    return false;
  };
  return {
      {{kSave},
       "inference_mode",
       kRefused,
       "what is written answers with predictions and with scores alike: 'predict' or 'score'",
       is_one_of({"predict", "score"})},
      {{kSave}, "create_preprocessor_fn", kRefused, python, preprocessors},
      refused_unless("exportable_module_cls", "ExportableModule", python),
      refused_unless("create_inference_function_fn", "create_inference_function", python),
      refused_unless("create_postprocessor_fn", "create_postprocessor", python),
      refused_unless("write_warmup_example_fn", "write_warmup_examples", python),
      refused_unless("create_polymorphic_shapes_fn", "create_batch_polymorphic_shapes", python),
      {{kSave}, "create_decoding_state_callback_fn", kRefused, python},
      {{kSave}, "trailing_shapes", kRefused, "models here have tokens alone as inputs", is_empty},
      {{kSave},
       "output_vocab_feature_name",
       kRefused,
       "answers are texts of the feature 'targets'",
       is_one_of({"targets"})},
      {{kSave},
       "partitioner",
       kWarned,
       "a file holds whole arrays; --num_partitions of serve divides them",
       always},
      {{kSave}, "batch_size", kWarned, requests},
      {{kSave}, "tokenized_inputs", kWarned, requests},
      {{kSave}, "warmup_examples", kWarned, compiled + ", so nothing needs to be warmed up"},
      {{kSave}, "validation_examples", kWarned, "every tensor is read back and compared"},
      {{kSave}, "native_lowering", kWarned, compiled},
      {{kSave}, "native_lowering_platforms", kWarned, compiled},
      {{kSave}, "enable_xla", kWarned, compiled},
      {{kSave}, "decode_outputs", kWarned, "answers are texts, and ids where a request asks"},
      {{kSave}, "signature_name", kWarned, "there is no SavedModel with signatures"},
  };
}

/// Of ExportableModule and of the functions that save calls.
std::vector<Row> rows_of_parts() {
  const std::string module = kLib + "ExportableModule",
                    from_task = kLib + "create_preprocessor_from_task",
                    plain = kLib + "create_preprocessor",
                    decoder = kLib + "create_decoder_preprocessor",
                    shapes = kLib + "create_batch_polymorphic_shapes",
                    inference = kLib + "create_inference_function",
                    answer = kLib + "create_postprocessor", warmup = kLib + "write_warmup_examples";
  const std::string
      passed = "export_lib.save passes its own, as in T5X",
      names = "requests and answers have the names of OpenAI's interface",
      no_task = "requests are the model's inputs; a task's preprocessors are not run on them",
      no_warmup = "nothing is compiled, so nothing needs to be warmed up";
  std::vector<Row> rows = {
      {{module}, "jit_compile", kWarned, "nothing is compiled", always},
      {{module}, "use_gpu", kWarned, "--device of serve chooses"},
      {{plain, from_task}, "batch_size", kWarned, passed, always},
      {{plain, from_task, decoder}, "output_features", kWarned, passed, always},
      {{plain, from_task, decoder}, "task_feature_lengths", kWarned, passed, always},
      {{plain, from_task, decoder}, "tokenized_inputs", kWarned, passed, always},
      {{plain, from_task, warmup}, "input_tensor_name", kWarned, names},
      {{plain}, "split_separator", kRefused, "requests for scores hold both texts"},
      {{plain}, "bucket_keys", kWarned, "inputs are not padded to certain lengths"},
      {{from_task}, "model", kWarned, passed, always},
      {{from_task}, "task_name", kWarned, no_task},
      {{from_task}, "serialized_examples", kWarned, "requests are texts or ids"},
      {{from_task}, "run_precache", kWarned, no_task},
      {{decoder}, "input_feature", kWarned, "requests are the beginning of a text"},
      {{inference}, "decoding_state_callback_fn", kRefused, "Python is not run"},
      {{inference}, "model_fn_extra_kwargs", kRefused, "Python is not run"},
      {{inference}, "jax2tf_disable_platform_checks", kWarned, "nothing is compiled"},
      {{inference}, "output_len", kWarned, names},
      {{answer}, "decode_outputs", kWarned, passed},
      {{answer}, "output_feature_names", kWarned, names},
      {{answer}, "add_token_length_to_output", kWarned, "answers say how many tokens they have"},
      {{shapes}, "create_fake_input_fn", kRefused, "Python is not run"},
      {{shapes}, "overrides", kWarned, "no shape is fixed"},
  };
  for (const char* name :
       {"num_batch_threads", "max_enqueued_batches", "batch_timeout_micros", "max_batch_size",
        "allowed_batch_sizes", "use_batch_function", "enable_large_batch_splitting"})
    rows.push_back({{module}, name, kWarned, "flags of serve say how requests become batches"});
  for (const char* name : {"generate_examples_fn", "decoder_params_spec",
                           "request_to_prediction_log", "input_tensor_dtype"})
    rows.push_back({{warmup}, name, kWarned, no_warmup});
  return rows;
}

}  // namespace

std::vector<Row> rows_of_export() {
  std::vector<Row> rows = rows_of_save();
  std::ranges::move(rows_of_parts(), std::back_inserter(rows));
  rows.push_back({{kPrecompile}, "random_seed", kWarned, "no value is computed"});
  rows.push_back({{kPrecompile},
                  "get_dataset_fn",
                  kRefused,
                  "batches have the sizes of the data set's configuration",
                  is_named("t5x.utils.get_dataset")});
  return rows;
}

}  // namespace quintet::ineffective
