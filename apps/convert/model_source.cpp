#include "apps/convert/model_source.h"

#include "apps/model/quantized_model.h"
#include "checkpoint/lora/peft.h"
#include "checkpoint/open/open_checkpoint.h"
#include "runtime/base/files/path_map.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {

HuggingFaceDirectory ModelSource::directory() const {
  if (!is_huggingface) return huggingface_directory(*trained.model);
  return huggingface_directory(dynamic_cast<const huggingface::Reader&>(*unadapted));
}

ModelSource open_model_source(const std::filesystem::path& path, const gin::CommandLine& gin_line,
                              bool needs_model, const std::string& adapter) {
  ModelSource source;
  const std::filesystem::path folder = local_path(path.string());
  source.is_huggingface =
      huggingface::is_directory(folder) && !is_peft(folder) && !is_there(folder / "config.gin");
  if (source.is_huggingface && !needs_model) {
    source.reader = source.unadapted = open_checkpoint(folder);
    if (!adapter.empty()) source.reader = adapted(source.unadapted, adapter);
    return source;
  }
  source.trained = open_merged_model(path, gin_line, Load::nothing);
  source.reader = source.unadapted = open_checkpoint(folder);
  if (!adapter.empty()) source.reader = adapted(source.unadapted, adapter);
  check_not_quantized(*source.reader);
  return source;
}

}  // namespace quintet
