#pragma once
// Low-rank adapters of a checkpoint (LoRA, arXiv:2106.09685): of a kernel W the product of two small matrices,
// by which W + scale A B is another model's. One of our runs has them as target/.../lora_a and lora_b, and says in
// its state of which base they are; peft.h reads and writes PEFT's directories.
//
//   const auto adapted = with_adapter(open_checkpoint("flan-t5-small"), adapter_of(*run).value());
//   adapted->read({"target/encoder/layers_0/attention/query/kernel", ...}, values);   // merged

#include <map>
#include <optional>

#include "checkpoint/checkpoint_reader.h"
#include "runtime/base/host_array.h"

namespace quintet {

struct LowRankMatrices {
  HostArray a, b;    // float32 [in, rank], [rank, out]
  double alpha = 1;  // of their product the factor times the rank
  int64_t rank() const { return a.shape.at(1); }
  double scale() const { return alpha / static_cast<double>(rank()); }
};

/// What tells one base from another of the same shapes: the sums of |w| over the first rows of some kernels, which
/// another dtype changes by less than a thousandth.
using BaseMarks = std::map<std::string, double>;

struct Adapter {
  std::filesystem::path folder;
  std::string base;                                // the checkpoint's path, as far as it is known
  BaseMarks marks;                                 // empty: not known
  std::map<std::string, LowRankMatrices> kernels;  // "target/.../query/kernel"
};

/// What a run's state says of its adapters, its member "lora".
struct AdapterRecord {
  std::string base;
  int64_t rank = 0;
  double alpha = 0;  // the scale is alpha / rank
  BaseMarks marks;
};
std::string to_json(const AdapterRecord& record);
/// None: the state of a run without adapters. `where`: for messages.
std::optional<AdapterRecord> adapter_record(const std::string& state_json,
                                            const std::string& where);

/// A run's state without it, as that of its merged model.
std::string without_adapter(const std::string& state_json);

/// "target/x/query/kernel" -> "target/x/query/lora_a".
std::string lora_name(const std::string& kernel, const char* matrix);

/// Of one of our checkpoints; none: it holds a model of its own. Throws kData for damage.
std::optional<Adapter> adapter_of(const CheckpointReader& native);

/// Of at most two of the kernels, the first and the last.
BaseMarks marks_of(const CheckpointReader& base, const std::vector<std::string>& kernels);
/// Throws kData naming both if a base is not the one that the marks are of.
void check_marks(const CheckpointReader& base, const BaseMarks& marks, const std::string& adapter);

/// The base with merged kernels, in float32; parameters alone. `state`: of the adapter's run, may be "". Throws kData
/// naming a kernel that the base lacks or has in another shape, and for another base than the adapter was trained on.
std::shared_ptr<const CheckpointReader> with_adapter(std::shared_ptr<const CheckpointReader> base,
                                                     Adapter adapter, std::string state = "",
                                                     std::optional<int64_t> step = {});
/// The adapter that such a checkpoint was merged of, and its base; null: of none.
const Adapter* adapter_in(const CheckpointReader& checkpoint);
/// Of its details(): which adapter it is, by path, step and checksum.
inline constexpr const char* kAdapterDetail = "adapter";

}  // namespace quintet
