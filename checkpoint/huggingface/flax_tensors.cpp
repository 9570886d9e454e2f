// flax.serialization's msgpack: dictionaries in dictionaries of arrays, by flax's module names.

#include <algorithm>

#include "checkpoint/arrays/msgpack.h"
#include "checkpoint/huggingface/formats.h"
#include "runtime/base/check.h"

namespace quintet::huggingface {
namespace {

void add(FileTensors& tensors, const std::string& path, FileTensor tensor,
         const std::string& where) {
  const size_t slash = path.rfind('/');
  const std::string leaf = slash == std::string::npos ? path : path.substr(slash + 1);
  std::string name = slash == std::string::npos ? "" : path.substr(0, slash);
  std::replace(name.begin(), name.end(), '/', '.');
  QT_CHECK_AS(ExitCode::kData, leaf == "kernel" || leaf == "embedding" || leaf == "weight",
              "{}: '{}': expected a kernel, an embedding or a weight", where, path);
  if (leaf == "kernel") tensor = tensor.transposed();
  QT_CHECK_AS(ExitCode::kData, tensors.emplace(name + ".weight", std::move(tensor)).second,
              "{}: '{}' is there twice", where, path);
}

void walk(FileTensors& tensors, const MsgpackValue& value, const std::string& path,
          const std::string& where) {
  if (const auto* members = value.as<MsgpackValue::Dict>()) {
    for (const auto& [key, member] : *members)
      walk(tensors, member, path.empty() ? std::string(key) : fmt::format("{}/{}", path, key),
           where);
    return;
  }
  const auto* tensor = value.as<FileTensor>();
  QT_CHECK_AS(ExitCode::kData, tensor != nullptr, "{}: '{}' is {}, expected an array", where, path,
              value.kind());
  add(tensors, path, *tensor, where);
}

}  // namespace

FileTensors flax_tensors(std::span<const std::byte> bytes, const std::string& where) {
  FileTensors tensors;
  walk(tensors, read_msgpack(bytes, where), "", where);
  return tensors;
}

}  // namespace quintet::huggingface
