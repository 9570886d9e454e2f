#pragma once
// PEFT's directory of a LoRA adapter: adapter_config.json and adapter_model.safetensors, of a T5 of transformers.
//
//   write_peft(folder, *adapter_in(*run));                   // peft.PeftModel.from_pretrained(base, folder)
//   with_adapter(base, read_peft(folder, *base));

#include "checkpoint/lora/adapter.h"

namespace quintet {

/// Whether a folder holds an adapter, maybe beside a model.
bool has_peft(const std::filesystem::path& folder);
/// An adapter and no model.
bool is_peft(const std::filesystem::path& folder);
/// base_model_name_or_path: a path or a name of the Hugging Face hub.
std::string peft_base(const std::filesystem::path& folder);

/// `base`: of whose layers it is. Throws kData naming the file and the field or tensor for what is no LoRA of a T5's
/// dense kernels: DoRA, biases, embeddings, modules that are saved whole.
Adapter read_peft(const std::filesystem::path& folder, const CheckpointReader& base);

/// Writes both files into a folder that is there. Throws kData naming a kernel that transformers' T5 has not.
void write_peft(const std::filesystem::path& folder, const Adapter& adapter,
                const CheckpointReader& base);
/// Throws kDisk unless the folder holds what was written.
void check_peft(const std::filesystem::path& folder, const Adapter& written,
                const CheckpointReader& base);

}  // namespace quintet
