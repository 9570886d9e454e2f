#include "checkpoint/open/open_checkpoint.h"

#include "checkpoint/huggingface/huggingface_reader.h"
#include "checkpoint/region_reader.h"

namespace quintet {

std::shared_ptr<const CheckpointReader> open_checkpoint(const std::filesystem::path& folder) {
  if (huggingface::is_directory(folder)) return std::make_shared<const huggingface::Reader>(folder);
  return std::make_shared<const NativeCheckpointReader>(folder);
}

}  // namespace quintet
