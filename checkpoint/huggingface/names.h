#pragma once
// What the parameters of a model are called by Hugging Face and by us (T5X's paths), and how their axes
// lie: one table, for reading and for writing.
//
//   for (const MappedTensor& tensor : mapped_tensors(config)) use(tensor.name, tensor.sources);

#include <string>
#include <vector>

#include "checkpoint/huggingface/config.h"

namespace quintet::huggingface {

struct MappedTensor {
  std::string name;                      // ours, below "target/"
  std::vector<int64_t> shape;            // ours
  std::vector<std::string> sources;      // Hugging Face's; of several each is one of our first axis
  bool transposed = false;               // theirs has the axes in the opposite order
  std::vector<std::string> copies = {};  // written too, of the same values
};

/// Every parameter. `untied`: the output projection has a matrix of its own, "lm_head.weight".
std::vector<MappedTensor> mapped_tensors(const Config& config, bool untied);

}  // namespace quintet::huggingface
