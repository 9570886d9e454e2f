#include "apps/convert/model_source.h"

#include "apps/model/quantized_model.h"
#include "checkpoint/open/open_checkpoint.h"
#include "runtime/base/files/path_map.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {

HuggingFaceDirectory ModelSource::directory() const {
  if (!is_huggingface) return huggingface_directory(*trained.model);
  return huggingface_directory(dynamic_cast<const huggingface::Reader&>(*reader));
}

ModelSource open_model_source(const std::filesystem::path& path, const gin::CommandLine& gin_line,
                              bool needs_model) {
  ModelSource source;
  const std::filesystem::path folder = local_path(path.string());
  source.is_huggingface = huggingface::is_directory(folder) && !is_there(folder / "config.gin");
  if (source.is_huggingface && !needs_model) {
    source.reader = open_checkpoint(folder);
    return source;
  }
  source.trained = open_trained_model(path, gin_line, Load::nothing);
  source.reader = open_checkpoint(folder);
  check_not_quantized(*source.reader);
  return source;
}

}  // namespace quintet
