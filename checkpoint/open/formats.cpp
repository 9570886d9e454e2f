#include "checkpoint/open/formats.h"

#include <algorithm>

#include "checkpoint/bundle/bundle.h"
#include "checkpoint/huggingface/huggingface_reader.h"
#include "checkpoint/lora/peft.h"
#include "checkpoint/open/open_checkpoint.h"
#include "checkpoint/open/recognize.h"
#include "checkpoint/orbax/orbax_reader.h"
#include "checkpoint/region_reader.h"
#include "checkpoint/t5x/layers.h"
#include "checkpoint/t5x/t5x_reader.h"
#include "checkpoint/tensorflow/tensorflow_reader.h"
#include "runtime/base/check.h"
#include "runtime/base/files/path_map.h"

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

/// Of an adapter at `path`; a base may be an adapter's run, too.
std::shared_ptr<const CheckpointReader> open_base(const std::string& base,
                                                  const std::filesystem::path& path) {
  constexpr int kMost = 8;
  thread_local int depth = 0;
  const struct Deeper {
    Deeper() { ++depth; }
    ~Deeper() { --depth; }
  } deeper;
  QT_CHECK_AS(ExitCode::kData, depth <= kMost,
              "{}: its base '{}' is an adapter, as are {} bases before it: does one of them name "
              "another that names it?",
              path.string(), base, kMost);
  return open_checkpoint(path_of_base(base, path));
}

/// A run with adapters holds nothing else.
std::shared_ptr<const CheckpointReader> open_native(const std::filesystem::path& path) {
  auto native = std::make_shared<const NativeCheckpointReader>(path);
  const auto record = adapter_record(native->state_json(), path.string());
  if (!record) return native;
  return adapted(open_base(record->base, path), path);
}

std::shared_ptr<const CheckpointReader> open_peft(const std::filesystem::path& path) {
  return adapted(open_base(peft_base(path), path), path);
}

constexpr CheckpointFormat kFormats[] = {
    {"a bundle of quintet export", bundle::is_at, open_with<bundle::Reader>},
    {"a checkpoint of Quintet", is_native, open_native},
    {"a PEFT adapter", is_peft, open_peft},
    {"a Hugging Face directory", is_huggingface, open_with<huggingface::Reader>},
    {"a T5X checkpoint", is_t5x, open_by_layer<t5x::Reader>},
    {"an Orbax checkpoint", is_orbax, open_by_layer<orbax::Reader>},
    {"a TensorFlow checkpoint", is_tensorflow, open_with<tensorflow::Reader>},
};

}  // namespace

std::filesystem::path path_of_base(const std::string& base, const std::filesystem::path& adapter) {
  std::error_code error;
  const std::filesystem::path path = find_local_path(base).value_or("");
  QT_CHECK_AS(ExitCode::kData, !path.empty() && std::filesystem::exists(path, error),
              "{}: is an adapter of '{}', which is not here; name its base as the model, and it "
              "with --adapter={}",
              adapter.string(), base, adapter.string());
  QT_CHECK_AS(ExitCode::kData, !std::filesystem::equivalent(path, adapter, error),
              "{}: is an adapter that names itself as its base; name its base as the model, and it "
              "with --adapter={}",
              adapter.string(), adapter.string());
  return path;
}

std::span<const CheckpointFormat> checkpoint_formats() { return kFormats; }

const CheckpointFormat* format_at(const std::filesystem::path& path) {
  const auto found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                  [&](const CheckpointFormat& f) { return f.is_at(path); });
  return found == std::end(kFormats) ? nullptr : &*found;
}

}  // namespace quintet
