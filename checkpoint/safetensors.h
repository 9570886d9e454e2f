#pragma once
// The safetensors file format: eight bytes of header length, a JSON header, then raw tensors.
// Source: huggingface/safetensors, format 0.5. Parsing validates everything before it allocates.

#include <filesystem>

#include "runtime/base/host_array.h"

namespace quintet {

/// All tensors of a file. Throws ExitCode::kData naming the file and the tensor if the header is not
/// valid, a tensor's bytes do not match its shape, or tensors overlap, leave holes or pass the end.
HostArrays read_safetensors(const std::filesystem::path& file);

}  // namespace quintet
