#pragma once
// Parameters of a model: declared by name with logical axes while the model is built, then filled
// by initialisation or from a checkpoint. Names are T5X's parameter paths.
//
//   Parameters parameters;
//   Param kernel = (Scope(parameters) / "encoder" / "wo")
//                      .param("kernel", {{"mlp", 64}, {"embed", 32}}, init);
//   parameters.initialize(key_from_seed(0));
//   ops::matmul(x, kernel);

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/float8.h"
#include "runtime/tensor/initializers.h"
#include "runtime/tensor/tensor.h"

namespace quintet {

struct ParamInfo;

/// What is added to a product with a frozen matrix W: x W + scale dropout(x) A B (arXiv:2106.09685).
struct LowRank {
  const ParamInfo *a = nullptr, *b = nullptr;  // [in, rank], [rank, out]
  double scale = 1, dropout_rate = 0;
};

/// Of the first kernel of dense layers that share their input: they multiply in 8-bit floating point
/// (kernels/fp8/fp8.h).
struct Fp8Layers {
  Tensor scaling;     // [layers, 20], of the trainer; absent: current scaling
  int64_t layer = 0;  // which of those
  Float8 gradient_format = Float8::e5m2;
  bool fused_casts = true;                     // who makes their input may leave it in their format
  std::vector<const ParamInfo*> kernels = {};  // these layers', this one's first
  Tensor weights =
      {};  // of the trainer: `kernels` in their format for this step; absent: they are cast where they are used
};

struct ParamInfo {
  std::string name;
  Spec spec;
  Initializer initializer;
  Tensor value;    // float32: the master copy; of a frozen one perhaps in fewer bits
  Tensor compute;  // what the network reads where it computes in another dtype; else absent
  Tensor scales;   // of a frozen matrix in 8 bits (int8, or uint8: float8's): float32, one a column
  bool frozen = false;  // no gradient, no optimizer's state, in no checkpoint of the run
  std::optional<LowRank> low_rank = {};
  std::optional<Fp8Layers> fp8 = {};
  bool has_more_axes_in_t5x =
      false;  // than two: Adafactor factors it by its rules there, however small

  /// The tensor of the network, which gradients belong to.
  const Tensor& used() const { return compute ? compute : value; }
};

/// Whether x of the FP8 layers whose first kernel this is may leave who makes it in 8 bits: under Fp8Layers::fused_casts, and
/// is_data_parallel(): other products gather x or take columns of it.
bool fuses_casts(const ParamInfo& first);

class Parameters {
 public:
  /// In order of declaration.
  std::deque<ParamInfo>& all() { return all_; }
  const std::deque<ParamInfo>& all() const { return all_; }
  /// Throws a usage error with the nearest known name if there is none.
  const ParamInfo& at(const std::string& name) const;
  /// Throws Bug if the name is taken.
  ParamInfo& declare(std::string name, Axes axes, Initializer initializer);

  /// T5X's initial values for jax.random.PRNGKey: each tensor from its own key, on all threads. On a
  /// mesh each rank makes its part, as the rules place it; so too below.
  void initialize(Key root);
  /// Memory without values; refresh() makes the copies.
  void allocate();
  /// Matrices are used in `dtype` from now on, copies of the float32 masters; norm scales, relative
  /// biases and routers stay float32. Needs a GPU: on the CPU bfloat16 is only stored.
  void set_compute_dtype(DType dtype) { compute_dtype_ = dtype; }
  /// Masters with copies lie in the host's memory from now on, those that are there are moved: of one rank, for an
  /// optimizer that updates them there.
  void keep_masters_on_host();
  /// Makes the copies of the masters again, after values were written. Whoever writes values calls it, also where there
  /// are no copies: optimizers keep sums of the values (UpdateArgs::params_unwritten).
  void refresh();
  /// How often values were written: by the functions here, or by whoever counts it.
  int64_t writes() const { return writes_; }
  int64_t count_write() { return ++writes_; }
  /// Copies values in. Throws kData listing every missing, unexpected or differently shaped name.
  void load(const HostArrays& values);
  int64_t elements() const;
  /// Those that are not frozen, in order.
  std::vector<const ParamInfo*> trained() const;
  /// All but adapters, in order: what a checkpoint of the model without them holds.
  std::vector<const ParamInfo*> of_base() const;

 private:
  Tensor memory_for_master(const ParamInfo& info, Buffer memory = nullptr) const;
  std::vector<Buffer> side_by_side(DType dtype, bool (*wanted)(const ParamInfo&)) const;

  DType compute_dtype_ = DType::f32;
  bool masters_on_host_ = false;
  int64_t writes_ = 0;
  std::deque<ParamInfo> all_;  // addresses stay
  std::map<std::string, ParamInfo*> by_name_;
};

/// A parameter in use: converts to its current tensor.
class Param {
 public:
  Param() = default;
  explicit Param(const ParamInfo* info) : info_(info) {}
  operator const Tensor&() const { return info_->used(); }  // NOLINT: a parameter is a tensor
  const Tensor& tensor() const { return info_->used(); }
  bool absent() const { return info_ == nullptr; }
  const ParamInfo& info() const { return *info_; }

 private:
  const ParamInfo* info_ = nullptr;
};

/// A place in the tree of parameter names.
class Scope {
 public:
  explicit Scope(Parameters& parameters) : parameters_(&parameters) {}
  Scope operator/(const std::string& name) const {
    Scope child = *this;
    child.path_ += (path_.empty() ? "" : "/") + name;
    return child;
  }
  Param param(const std::string& name, Axes axes, Initializer initializer,
              bool has_more_axes_in_t5x = false) const {
    ParamInfo& info =
        parameters_->declare((*this / name).path_, std::move(axes), std::move(initializer));
    info.has_more_axes_in_t5x = has_more_axes_in_t5x;
    return Param(&info);
  }
  const std::string& path() const { return path_; }

 private:
  Parameters* parameters_;
  std::string path_;
};

}  // namespace quintet
