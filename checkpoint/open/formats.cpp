#include "checkpoint/open/formats.h"

#include <algorithm>

#include "checkpoint/huggingface/huggingface_reader.h"
#include "checkpoint/open/recognize.h"
#include "checkpoint/orbax/orbax_reader.h"
#include "checkpoint/region_reader.h"
#include "checkpoint/t5x/layers.h"
#include "checkpoint/t5x/t5x_reader.h"
#include "checkpoint/tensorflow/tensorflow_reader.h"

namespace quintet {
namespace {

template <typename Reader>
std::shared_ptr<const CheckpointReader> open_with(const std::filesystem::path& path) {
  return std::make_shared<const Reader>(path);
}

/// T5X may have layers in stacks.
template <typename Reader>
std::shared_ptr<const CheckpointReader> open_by_layer(const std::filesystem::path& path) {
  return t5x::by_layer(std::make_shared<const Reader>(path));
}

constexpr CheckpointFormat kFormats[] = {
    {"a checkpoint of Quintet", is_native, open_with<NativeCheckpointReader>},
    {"a Hugging Face directory", is_huggingface, open_with<huggingface::Reader>},
    {"a T5X checkpoint", is_t5x, open_by_layer<t5x::Reader>},
    {"an Orbax checkpoint", is_orbax, open_by_layer<orbax::Reader>},
    {"a TensorFlow checkpoint", is_tensorflow, open_with<tensorflow::Reader>},
};

}  // namespace

std::span<const CheckpointFormat> checkpoint_formats() { return kFormats; }

const CheckpointFormat* format_at(const std::filesystem::path& path) {
  const auto found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                  [&](const CheckpointFormat& f) { return f.is_at(path); });
  return found == std::end(kFormats) ? nullptr : &*found;
}

}  // namespace quintet
