#pragma once
// The file `checkpoint` of a T5X checkpoint: a tree of which the leaves are arrays, or say in which folder
// beside the file an array lies.
//
//   const Index index = read_index(file.bytes(), "checkpoint_3/checkpoint");
//   index.leaves.at("target/token_embedder/embedding").folder;   // "target.token_embedder.embedding"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/arrays/file_tensor.h"

namespace quintet::t5x {

struct Leaf {
  FileTensor array = {};      // where `folder` is empty
  std::string folder = {};    // of a zarr array, beside the file
  std::string metadata = {};  // what the index says of it, as .zarray; empty: nothing
  std::vector<std::byte> number =
      {};  // what `array` points to, of a number that is none in the file
};

struct Index {
  int64_t version = 0;                 // 0: not said, as by flax and Orbax
  bool from_orbax = false;             // folders are named by placeholders
  std::map<std::string, Leaf> leaves;  // by their path below T5X's train state: "state/step"
};

/// Source: t5x/checkpoints.py, versions 2 and 3; flax's train states and Orbax's aggregate file, which have
/// placeholders. flaxformer's "__save_format_metadata__" and members that are None are left out. Throws
/// ExitCode::kData naming `where` and the leaf for what read_msgpack refuses, other versions, a folder outside,
/// and a leaf that is no array.
Index read_index(std::span<const std::byte> bytes, const std::string& where);

}  // namespace quintet::t5x
