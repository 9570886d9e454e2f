#pragma once
// The three file formats of Hugging Face weights: what tensors a file's bytes hold. All check sizes
// before they allocate, hold pointers into `bytes`, and throw ExitCode::kData naming `where` and the
// place in the file.

#include <span>
#include <string>

#include "checkpoint/arrays/file_tensor.h"

namespace quintet::huggingface {

/// model.safetensors. Source: huggingface/safetensors, format 0.5.
FileTensors safetensors_tensors(std::span<const std::byte> bytes, const std::string& where);

/// pytorch_model.bin: what torch.save writes of a state_dict, as a zip archive (since PyTorch 1.6) or as a
/// row of pickles (before). Nothing in it is executed: of pickle's machine there is what tensors need, and
/// any global but theirs is refused by name.
FileTensors torch_tensors(std::span<const std::byte> bytes, const std::string& where);

/// flax_model.msgpack: flax.serialization of nested dictionaries of arrays. Names become PyTorch's, kernels
/// PyTorch's orientation.
FileTensors flax_tensors(std::span<const std::byte> bytes, const std::string& where);

}  // namespace quintet::huggingface
