#pragma once
// The formats that checkpoints are written in, a row each.
//
//   const WriteFormat& format = write_format_named("hf");     // native, t5x, hf, peft
//   const auto writer = format.make(request);

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/huggingface/config.h"
#include "checkpoint/t5x/stacks.h"

namespace quintet {

/// What a writer is told. The same on all hosts, but for `host` and `share`.
struct WriteRequest {
  std::filesystem::path folder = {};    // of the checkpoint itself; a bundle's file
  StoredTensors tensors = {};           // all there will be
  std::vector<std::string> share = {};  // those that this host writes, in that order
  int host = 0, hosts = 1;
  int64_t step = 0;
  std::string run_id = {}, state_json = "{}";            // native, and the state of a bundle
  std::string config_text = {}, name = {};               // bundle
  std::map<std::string, std::string> vocabularies = {};  // bundle: bytes of their files
  std::optional<huggingface::Config> config = {};        // hf
  std::optional<t5x::Stacking> stacking = {};            // t5x: what `from` was made with
  int64_t shard_bytes = int64_t{50'000'000'000};         // hf: of a file, as transformers 5
};

struct WriteFormat {
  std::string_view name, title;
  bool is_run_directory;  // the checkpoint is a folder checkpoint_<step> in one, beside config.gin
  bool has_optimizer;     // holds more than parameters
  bool holds_models;      // else an adapter of the checkpoint that is copied, alone
  /// Null of an adapter, which copy_checkpoint writes itself.
  std::unique_ptr<CheckpointWriter> (*make)(const WriteRequest& request);
};

std::span<const WriteFormat> write_formats();
/// Throws a usage error that lists the names.
const WriteFormat& write_format_named(std::string_view name);

}  // namespace quintet
