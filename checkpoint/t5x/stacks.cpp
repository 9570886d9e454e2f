#include "checkpoint/t5x/stacks.h"

#include <algorithm>
#include <regex>

#include "checkpoint/arrays/blocks.h"
#include "checkpoint/t5x/layout.h"
#include "runtime/base/check.h"

namespace quintet::t5x {
namespace {

using Shape = std::vector<int64_t>;

/// Arrays of all layers that become one.
struct Stack {
  std::vector<std::string> layers;  // their names, in order
  Shape layer_shape;                // of one of them: heads apart, 1 on the layers' axis
  std::optional<size_t> axis;       // of the layers; none: there is one
};

/// Where an array of a layer goes.
struct Place {
  std::string ending;  // of the name
  Shape layer_shape;
  std::optional<size_t> axis = {};
};

/// A layer's array: "<before>encoder/layers_3/<rest>".
struct LayerName {
  std::string before, stack, rest;
  int64_t layer = 0;

  static std::optional<LayerName> of(const std::string& name) {
    static const std::regex kPattern("(|.*/)(encoder|decoder)/layers_([0-9]{1,4})/(.*)");
    std::smatch match;
    if (!std::regex_match(name, match, kPattern)) return std::nullopt;
    return LayerName{match[1], match[2], match[4], std::stoll(match[3])};
  }
  std::string stacked(const std::string& ending) const {
    return fmt::format("{}{}/{}/{}", before, stack, stack, ending);
  }
  std::string apart(const std::string& ending) const {
    return fmt::format("{}{}/layers_{}/{}", before, stack, layer, ending);
  }
};

class StackReader final : public CheckpointReader {
 public:
  StackReader(std::shared_ptr<const CheckpointReader> layers, const Stacking& stacking)
      : CheckpointReader(layers->folder()), layers_(std::move(layers)), stacking_(stacking) {
    for (const auto& [name, tensor] : layers_->tensors()) {
      check_has_place(name);
      if (const auto of_layer = LayerName::of(name))
        add(*of_layer, name, tensor);
      else
        tensors_[name] = tensor;
    }
    if (stacking_.axis) check_whole();
  }

  int64_t file_bytes() const override { return layers_->file_bytes(); }
  int64_t step() const override { return layers_->step(); }
  std::vector<std::pair<std::string, std::string>> details() const override {
    return layers_->details();
  }
  const std::string& state_json() const override { return layers_->state_json(); }
  bool is_native() const override { return layers_->is_native(); }
  using CheckpointReader::verify;
  NotFinite verify(int part, int parts) const override { return layers_->verify(part, parts); }
  bool reading_verifies() const override { return layers_->reading_verifies(); }
  std::string storage_key(const std::string& name) const override {
    const auto found = stacks_.find(name);
    return layers_->storage_key(found == stacks_.end() ? name : found->second.layers.front());
  }

 protected:
  void read_region(const TensorRegion& region, std::byte* target) const override {
    const auto found = stacks_.find(region.name);
    if (found == stacks_.end()) return layers_->read(region, target);
    const Stack& stack = found->second;
    const int64_t first = stack.axis ? region.origin[*stack.axis] : 0;
    const int64_t count = stack.axis ? region.sizes[*stack.axis] : 1;
    for (int64_t at = first; at < first + count; ++at) {
      Block block{Shape(stack.layer_shape.size()), stack.layer_shape};
      if (stack.axis) block.origin[*stack.axis] = at;
      const std::string& name = stack.layers[static_cast<size_t>(at)];
      const StoredTensor& stored = layers_->tensors().at(name);
      HostArray layer(stored.dtype, stored.shape);
      layers_->read({name, Shape(stored.shape.size()), stored.shape}, layer.bytes.data());
      copy_overlap(block, layer.bytes.data(), {region.origin, region.sizes}, target,
                   size_of(stored.dtype));
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& what) const {
    fail(ExitCode::kUsage,
         "{}: '{}' {}; write a layer each, without --scan_axis, where the network is another",
         folder_.string(), name, what);
  }

  void check_has_place(const std::string& name) const {
    for (const char* stack : {"encoder", "decoder"})
      if (name.ends_with(fmt::format("target/{}/relpos_bias/rel_embedding", stack)))
        refuse(name, "is shared by all layers, and T5X's scanned layers have one each");
    const bool is_experts =
        name.find("/expert/") != std::string::npos || name.find("/router/") != std::string::npos;
    if (is_experts && stacking_.blocks.empty())
      refuse(name, "belongs to experts, which T5X's scanned layers do not have");
  }

  void add(const LayerName& of, const std::string& name, const StoredTensor& tensor) {
    const Place place = place_of(of, name, tensor.shape);
    const auto block = stacking_.blocks.find(of.stack);
    const int64_t layers = block == stacking_.blocks.end() ? 1 : block->second;
    const std::string subblock =
        block == stacking_.blocks.end() ? "" : fmt::format("subblock_{}/", of.layer % layers);
    const std::string ours =
        stacking_.axis ? of.stacked(subblock + place.ending) : of.apart(place.ending);
    Stack& stack = stacks_[ours];
    StoredTensor& all = tensors_[ours];
    if (stack.layers.empty()) {
      stack.layer_shape = place.layer_shape;
      stack.axis = place.axis;
      all = {tensor.dtype, place.layer_shape};
    }
    if (place.layer_shape != stack.layer_shape || tensor.dtype != all.dtype)
      refuse(name, "is not as that of other layers");
    const size_t layer = stack.axis ? static_cast<size_t>(of.layer / layers) : 0;
    if (stack.layers.size() <= layer) stack.layers.resize(layer + 1);
    stack.layers[layer] = name;
    if (stack.axis) all.shape[*stack.axis] = std::ssize(stack.layers);
  }

  void check_whole() const {
    std::map<std::string, size_t> most;  // layers of each "<before>encoder/encoder"
    const auto of = [](const std::string& name) {
      return name.find("encoder/encoder/") != std::string::npos ? "encoder" : "decoder";
    };
    for (const auto& [name, stack] : stacks_)
      most[of(name)] = std::max(most[of(name)], stack.layers.size());
    for (const auto& [name, stack] : stacks_)
      if (stack.layers.size() != most[of(name)] || std::ranges::count(stack.layers, "") > 0)
        refuse(name, "is not of every layer");
  }

  Place place_of(const LayerName& of, const std::string& name, const Shape& shape) const {
    // The parameter that the array is, or belongs to.
    std::string rest = of.rest;
    const auto parameter_named = [&](const std::string& below) {
      return layers_->tensors().find(
          fmt::format("{}{}/layers_{}/{}", kParameterPrefix, of.stack, of.layer, below));
    };
    auto found = parameter_named(rest);
    if (found == layers_->tensors().end()) found = parameter_named(rest = parent(rest));
    if (found == layers_->tensors().end()) refuse(name, "belongs to no parameter");
    const Shape& parameter = found->second.shape;
    const std::string slot = of.rest.substr(rest.size());
    if (shape == parameter) return place(of.rest, rest, parameter, std::nullopt);
    const bool is_row = slot == "/v_row";
    const size_t matrix = parameter.size() - 2;  // axes before it: experts
    if ((!is_row && slot != "/v_col") || parameter.size() < 2 || parameter.size() > 3 ||
        shape.size() != parameter.size() - 1)
      refuse(name, "has another shape than its parameter");
    const size_t width = width_is_last("/" + rest) ? 1 : 0;
    // Ours: of a matrix the rows are the smaller axis, of experts' the model's width, as T5X's.
    const bool first_is_row = matrix == 0 ? parameter[0] <= parameter[1] : width == 0;
    const size_t kept = is_row == first_is_row ? 0 : 1;
    return place(rest + (kept == width ? "/v_row" : "/v_col"), rest, parameter, matrix + 1 - kept);
  }

  /// `without`: the one axis of the parameter that the array has not.
  Place place(const std::string& ending, const std::string& path, const Shape& parameter,
              std::optional<size_t> without) const {
    const std::optional<size_t> joined = joined_axis(path, parameter);
    Shape sizes;
    std::vector<std::optional<size_t>> axes;  // of the parameter; none: the layers'
    const auto push = [&](int64_t size, std::optional<size_t> axis) {
      sizes.push_back(size);
      axes.push_back(axis);
    };
    for (size_t i = 0; i < parameter.size(); ++i) {
      if (i == joined) push(stacking_.heads, i);
      push(i == joined ? parameter[i] / stacking_.heads : parameter[i], i);
    }
    if (stacking_.axis) {
      sizes.insert(sizes.begin() + *stacking_.axis, 1);
      axes.insert(axes.begin() + *stacking_.axis, std::nullopt);
    }
    Place place{.ending = ending, .layer_shape = {}};
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (!axes[i]) place.axis = place.layer_shape.size();
      if (!axes[i] || !without || axes[i] != without) place.layer_shape.push_back(sizes[i]);
    }
    return place;
  }

  /// The axis of an attention kernel that is heads and a head's size.
  std::optional<size_t> joined_axis(const std::string& path, const Shape& parameter) const {
    static const std::regex kKernel("(|.*/)[a-z_]*attention/(query|key|value|out)/kernel");
    std::smatch match;
    if (stacking_.heads == 0 || !std::regex_match(path, match, kKernel) || parameter.size() != 2)
      return std::nullopt;
    const size_t axis = match[2] == "out" ? 0 : 1;
    QT_CHECK(parameter[axis] % stacking_.heads == 0, "{}: '{}' has {} columns for {} heads",
             folder_.string(), path, parameter[axis], stacking_.heads);
    return axis;
  }
  static std::string parent(const std::string& path) {
    return path.substr(0, std::min(path.size(), path.rfind('/')));
  }

  std::shared_ptr<const CheckpointReader> layers_;
  const Stacking stacking_;
  std::map<std::string, Stack> stacks_;
};

}  // namespace

std::shared_ptr<const CheckpointReader> stacked(std::shared_ptr<const CheckpointReader> layers,
                                                const Stacking& stacking) {
  return std::make_shared<const StackReader>(std::move(layers), stacking);
}

}  // namespace quintet::t5x
