#include "checkpoint/open/recognize.h"

#include <algorithm>
#include <fstream>

#include "checkpoint/huggingface/config.h"
#include "checkpoint/manifest.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::string first_bytes(const fs::path& path, size_t most) {
  if (!is_file(path)) return "";
  std::string bytes(most, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(most));
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

/// Whether an entry of a folder has a name for which `matches` is true; a folder that cannot be listed has none.
template <typename Predicate>
bool has_entry(const fs::path& folder, Predicate matches) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (matches(entry->path())) return true;
  return false;
}

/// A file that begins with a dictionary of msgpack, which no text does.
bool is_msgpack_file(const fs::path& path) {
  const std::string bytes = first_bytes(path, 2);
  if (bytes.size() < 2) return false;
  const auto tag = static_cast<uint8_t>(bytes[0]), key = static_cast<uint8_t>(bytes[1]);
  if (tag == 0xde || tag == 0xdf) return true;
  return tag >= 0x80 && tag <= 0x8f && key >= 0xa0 && key <= 0xdb;
}

/// Of a train state, or of what T5X wraps it in.
bool begins_with_train_state(const fs::path& path) {
  if (!is_msgpack_file(path)) return false;
  std::string bytes = first_bytes(path, 20);
  bytes.erase(0, bytes[1] == '\xd9' ? 3 : 2);  // the dictionary's size, the key's
  for (const char* key : {"version", "optimizer", "_optimizer", "target", "state"})
    if (bytes.starts_with(key)) return true;
  return false;
}

bool has_orbax_files(const fs::path& path) {
  return has_entry(path, [](const fs::path& entry) {
    const std::string name = entry.filename().string();
    return name == "manifest.ocdbt" || name == "_METADATA" || name == "_CHECKPOINT_METADATA";
  });
}

/// Other things that people have where a checkpoint is asked for.
struct Other {
  const char* what;
  bool (*is_at)(const fs::path& path);
};

constexpr Other kOthers[] = {
    {"a TensorFlow SavedModel",
     [](const fs::path& path) {
       return is_file(path / "saved_model.pb") || is_file(path / "saved_model.pbtxt");
     }},
    {"a GGUF file", [](const fs::path& path) { return first_bytes(path, 4) == "GGUF"; }},
    {"a zarr array", [](const fs::path& path) { return is_file(path / ".zarray"); }},
    {"a folder of zarr arrays without the index of a checkpoint",
     [](const fs::path& path) {
       return is_file(path / ".zgroup") ||
              has_entry(path, [](const fs::path& entry) { return is_file(entry / ".zarray"); });
     }},
    {"a CTranslate2 model",
     [](const fs::path& path) {
       return is_file(path / "model.bin") && is_file(path / "config.json");
     }},
    {"a folder whose config.json names neither model_type nor architectures",
     [](const fs::path& path) { return is_file(path / "config.json"); }},
    {"a safetensors file: name the Hugging Face directory that it is from", is_safetensors},
    {"a file of PyTorch: name the Hugging Face directory that it is from",
     [](const fs::path& path) {
       return first_bytes(path, 4) == "PK\x03\x04" || first_bytes(path, 2) == "\x80\x02";
     }},
    {"a msgpack file: name the directory that it is from", is_msgpack_file},
    {"weights without the config.json of a Hugging Face directory",
     [](const fs::path& path) {
       return has_entry(path, [](const fs::path& entry) {
         const std::string name = entry.filename().string();
         return name.ends_with(".safetensors") || name == "pytorch_model.bin" ||
                name == "flax_model.msgpack";
       });
     }},
    {"a folder of GGUF files",
     [](const fs::path& path) {
       return has_entry(path, [](const fs::path& entry) { return entry.extension() == ".gguf"; });
     }},
};

constexpr Other kNothings[] = {
    {"the directory of a run that has saved no checkpoint yet",
     [](const fs::path& path) { return is_file(path / "config.gin"); }},
    {"an empty folder",
     [](const fs::path& path) {
       std::error_code error;
       return is_folder(path) && fs::is_empty(path, error);
     }},
    {"a folder without anything known in it", is_folder},
    {"a file of no known kind", is_file},
};

}  // namespace

bool is_native(const fs::path& path) {
  return has_entry(path, [](const fs::path& entry) {
    const std::string name = entry.filename().string();
    return name == kManifestName || name == kStateName ||
           (name.starts_with("data-") && name.ends_with(".h5"));
  });
}

bool is_huggingface(const fs::path& path) {
  try {
    return huggingface::is_directory(path);
  } catch (const Error&) {  // config.json is no JSON
    return false;
  }
}

bool is_t5x(const fs::path& path) {
  if (is_file(path)) return begins_with_train_state(path);
  // Orbax of 2023 wrote both; then the arrays are in the store.
  const auto is_index_of = [](const fs::path& folder) {
    return is_msgpack_file(folder / "checkpoint") && !is_file(folder / "manifest.ocdbt");
  };
  return is_index_of(path) || is_index_of(path / "state");
}

bool is_orbax(const fs::path& path) {
  return !is_t5x(path) && (has_orbax_files(path) || has_orbax_files(path / "state"));
}

bool is_tensorflow(const fs::path& path) {
  fs::path index = path;
  if (is_file(index += ".index")) return true;
  return has_entry(path, [](const fs::path& entry) {
    const std::string name = entry.filename().string();
    return (name.ends_with(".index") && name.find(".ckpt") != std::string::npos) ||
           (name == "checkpoint" && first_bytes(entry, 21) == "model_checkpoint_path");
  });
}

bool is_safetensors(const fs::path& path) {
  const std::string bytes = first_bytes(path, 9);
  return is_file(path) &&
         (path.extension() == ".safetensors" || (bytes.size() == 9 && bytes[8] == '{'));
}

bool is_folder_of_nothing_known(const fs::path& path) {
  return is_folder(path) &&
         std::ranges::none_of(kOthers, [&](const Other& other) { return other.is_at(path); });
}

std::string what_lies_at(const fs::path& path) {
  for (const Other& other : kOthers)
    if (other.is_at(path)) return other.what;
  for (const Other& nothing : kNothings)
    if (nothing.is_at(path)) return nothing.what;
  return "nothing: there is no such file or folder";
}

}  // namespace quintet
