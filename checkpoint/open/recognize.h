#pragma once
// What lies at a path, by its files' names and first bytes: quick, and never an error.
//
//   if (is_t5x("/runs/small/checkpoint_1000")) ...
//   what_lies_at("/models/saved");   // "a TensorFlow SavedModel"

#include <filesystem>
#include <string>

namespace quintet {

/// checkpoint_<step> of a run of ours, damaged or not.
bool is_native(const std::filesystem::path& path);
/// A Hugging Face directory.
bool is_huggingface(const std::filesystem::path& path);
/// What T5X's Checkpointer and Orbax before OCDBT write: a msgpack file `checkpoint`, arrays beside it. The
/// folder, the file itself, or a folder that holds all this in `state`.
bool is_t5x(const std::filesystem::path& path);
/// What Orbax writes with OCDBT or as zarr folders without an index: checkpoint_<step>, or its `state`.
bool is_orbax(const std::filesystem::path& path);
/// TensorFlow's: a prefix such as "model.ckpt-3" of .index and .data files, or a folder of such.
bool is_tensorflow(const std::filesystem::path& path);

/// One file, by its name or its header.
bool is_safetensors(const std::filesystem::path& path);

/// A folder that is none of these and holds no other program's weights: an empty one, or that of a run.
bool is_folder_of_nothing_known(const std::filesystem::path& path);

/// What there is if it is none of these: "a GGUF file", "a folder without anything we know".
std::string what_lies_at(const std::filesystem::path& path);

}  // namespace quintet
