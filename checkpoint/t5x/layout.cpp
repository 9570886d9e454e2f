#include "checkpoint/t5x/layout.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "checkpoint/arrays/file_tensor.h"
#include "runtime/base/check.h"

namespace quintet::t5x {
namespace {

using Axes = std::vector<size_t>;
using Shape = std::vector<int64_t>;

constexpr std::string_view kSubblock = "subblock_";
constexpr size_t kMostFactoredAxes = 6;

std::vector<std::string> split(const std::string& path) {
  std::vector<std::string> parts(1);
  for (const char c : path)
    if (c == '/')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

template <typename Iterator>
std::string join(Iterator begin, Iterator end) {
  return fmt::format("{}", fmt::join(begin, end, "/"));
}

/// A parameter as it is stored, and what of it is otherwise than ours.
struct Parameter {
  std::string path;  // below "target/"
  Shape shape;
  std::optional<size_t> layers = {};  // axis
  std::optional<size_t> heads =
      {};  // axis; the size of a head is on the next that is not the layers'
  std::string stack = {}, rest = {};  // ours is stack/layers_<i>/rest
  int64_t first_layer = 0, step = 1;  // the i-th in it is layer first_layer + i * step

  bool is_ours() const { return !layers && !heads; }
  int64_t count() const { return layers ? shape[*layers] : 1; }
  std::string name_of(int64_t i) const {
    return layers ? fmt::format("{}/layers_{}/{}", stack, first_layer + i * step, rest) : path;
  }
  /// All axes but the layers', in order.
  Axes inner_axes() const {
    Axes axes;
    for (size_t i = 0; i < shape.size(); ++i)
      if (i != layers) axes.push_back(i);
    return axes;
  }
  /// The axis that is as wide as the model.
  size_t width_axis() const {
    const Axes axes = inner_axes();
    if (width_is_last(path)) return axes.back();
    return axes[path.find("/expert/") == std::string::npos || axes.size() < 2 ? 0 : 1];
  }
};

class Layout {
 public:
  Layout(const std::map<std::string, StoredTensor>& stored, const std::string& where)
      : stored_(stored), where_(where) {
    for (const auto& [name, tensor] : stored_) {
      if (name.starts_with(kParameterPrefix))
        add_parameter(name.substr(kParameterPrefix.size()), tensor.shape);
      has_momentum_ |= name.ends_with("/m") && tensor.shape != Shape{1};
    }
    for (auto& [path, parameter] : parameters_)
      if (parameter.step == 0) parameter.step = std::ssize(subblocks_[parameter.stack]);
  }

  std::map<std::string, Source> read() {
    const bool all_ours = std::all_of(parameters_.begin(), parameters_.end(),
                                      [](const auto& p) { return p.second.is_ours(); });
    for (const auto& [name, tensor] : stored_) add(name, tensor.shape);
    if (all_ours && sources_.size() == stored_.size()) return {};
    return std::move(sources_);
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& what) const {
    fail(ExitCode::kData, "{}: '{}' {}", where_, name, what);
  }

  /// The axis of the layers is 1, T5X's default, unless the norms show that it is 0.
  size_t axis_of_layers(const std::string& stack) const {
    for (const auto& [name, tensor] : stored_) {
      if (!name.starts_with(kParameterPrefix) || !name.ends_with("_norm/scale")) continue;
      const bool stacked =
          name.starts_with(fmt::format("{}{}/{}/", kParameterPrefix, stack, stack));
      const auto norm =
          stored_.find(fmt::format("{}{}/{}_norm/scale", kParameterPrefix, stack, stack));
      if (!stacked || tensor.shape.size() != 2 || norm == stored_.end()) continue;
      return tensor.shape[0] == norm->second.shape.back() ? 1 : 0;
    }
    return 1;
  }

  void add_parameter(const std::string& path, const Shape& shape) {
    Parameter parameter{.path = path, .shape = shape};
    const std::vector<std::string> parts = split(path);
    if (parts.size() > 3 && parts[0] == parts[1] &&
        (parts[0] == "encoder" || parts[0] == "decoder"))
      add_layers(parameter, parts);
    add_heads(parameter, parts);
    parameters_.emplace(path, std::move(parameter));
  }

  void add_layers(Parameter& parameter, const std::vector<std::string>& parts) {
    parameter.layers = axis_of_layers(parts[0]);
    if (parameter.shape.size() < 2)
      refuse(parameter_key(parameter.path),
             fmt::format("has shape {}, expected one axis of layers among others",
                         shape_text(parameter.shape)));
    parameter.stack = parts[0];
    auto rest = parts.begin() + 2;
    if (rest->starts_with(kSubblock)) {
      const std::string number = rest->substr(kSubblock.size());
      if (number.empty() || number.size() > 4 ||
          number.find_first_not_of("0123456789") != std::string::npos)
        refuse(parameter_key(parameter.path), "has a subblock without a number");
      parameter.first_layer = std::stoll(number);
      parameter.step = 0;  // as many as there are subblocks: known when all have been seen
      subblocks_[parts[0]].insert(*rest++);
    }
    parameter.rest = join(rest, parts.end());
  }

  static void add_heads(Parameter& parameter, const std::vector<std::string>& parts) {
    const Axes axes = parameter.inner_axes();
    const bool is_attention = parts.size() > 3 && parts.back() == "kernel" &&
                              parts[parts.size() - 3].ends_with("attention");
    if (axes.size() != 3 || parts.size() < 3 || parts.back() != "kernel") return;
    const std::string& module = parts[parts.size() - 2];
    if (module == "q_wi_fused" || module == "kv_fused") parameter.heads = axes[1];
    if (module == "o_wo_fused") parameter.heads = axes[0];
    if (!is_attention) return;
    if (module == "query" || module == "key" || module == "value") parameter.heads = axes[1];
    if (module == "out") parameter.heads = axes[0];
  }

  /// The parameter that a name of the train state belongs to, and where in the name its path begins.
  std::pair<const Parameter*, size_t> owner_of(const std::string& name) const {
    for (size_t at = 0;; ++at) {
      const std::string below = name.substr(at);
      for (const std::string& path : {below, below.substr(0, below.rfind('/'))})
        if (const auto found = parameters_.find(path); found != parameters_.end())
          return {&found->second, at};
      at = name.find('/', at);
      if (at == std::string::npos) break;
    }
    return {nullptr, 0};
  }

  void add(const std::string& name, const Shape& shape) {
    const auto [parameter, at] = owner_of(name);
    if (parameter == nullptr) return put(name, {name, shape});
    const std::string slot = name.substr(std::min(name.size(), at + parameter->path.size()));
    if (is_unused(*parameter, slot, shape)) return;
    if (parameter->is_ours()) return put(name, {name, shape});
    const Axes axes = slot_axes(*parameter, name, shape);
    const std::string ours = is_swapped(*parameter, name) ? other_slot(slot) : slot;
    for (int64_t i = 0; i < parameter->count(); ++i)
      put(name.substr(0, at) + parameter->name_of(i) + ours,
          source(*parameter, name, shape, axes, i));
  }
  void put(const std::string& name, Source source) {
    if (!sources_.emplace(name, std::move(source)).second) refuse(name, "is there twice");
  }

  /// T5X's Adafactor keeps a number of 0 for what it does not need of a parameter; of one of shape [1] the
  /// slots that it needs are as small.
  bool is_unused(const Parameter& parameter, const std::string& slot, const Shape& shape) const {
    if (shape != Shape{1}) return false;
    if (is_factored(slot)) return true;
    const bool is_needed = parameter.shape == shape && (slot == "/v" || has_momentum_);
    return (slot == "/m" || slot == "/v") && !is_needed;
  }
  static std::string other_slot(const std::string& slot) {
    return slot == "/v_row" ? "/v_col" : "/v_row";
  }
  static bool is_factored(const std::string& name) {
    return name.ends_with("/v_row") || name.ends_with("/v_col");
  }

  /// Which of the parameter's axes an array of its optimizer state has.
  Axes slot_axes(const Parameter& parameter, const std::string& name, const Shape& shape) const {
    if (shape == parameter.shape) {
      Axes all(shape.size());
      for (size_t i = 0; i < all.size(); ++i) all[i] = i;
      return all;
    }
    if (is_factored(name)) {
      const auto& [row, column] = factors_of(parameter, name);
      return name.ends_with("/v_row") ? row : column;
    }
    refuse(name, fmt::format("has shape {}, the parameter {}", shape_text(shape),
                             shape_text(parameter.shape)));
  }

  /// The axes of Adafactor's v_row and v_col. Each of the parameter's is in one of them or, as that of the
  /// layers, in both; the model's width is a row.
  std::pair<Axes, Axes> factors_of(const Parameter& parameter, const std::string& name) const {
    const std::string slots = name.substr(0, name.size() - 6);
    const auto row = stored_.find(slots + "/v_row"), column = stored_.find(slots + "/v_col");
    const Axes inner = parameter.inner_axes();
    if (row == stored_.end() || column == stored_.end() || inner.size() > kMostFactoredAxes)
      refuse(name, "has no other half");
    std::optional<std::pair<Axes, Axes>> found;
    size_t ways = 1;
    for (size_t i = 0; i < inner.size(); ++i) ways *= 3;
    for (size_t way = 0; way < ways; ++way) {
      std::pair<Axes, Axes> axes;
      size_t left = way;
      for (size_t i = 0; i < parameter.shape.size(); ++i) {
        const size_t choice = i == parameter.layers ? 2 : left % 3;
        if (i != parameter.layers) left /= 3;
        if (choice != 1) axes.first.push_back(i);
        if (choice != 0) axes.second.push_back(i);
      }
      const bool width_is_row =
          std::count(axes.second.begin(), axes.second.end(), parameter.width_axis()) == 0;
      if (axes.first.size() + axes.second.size() < parameter.shape.size() * 2 &&
          shape_on(parameter, axes.first) == row->second.shape &&
          shape_on(parameter, axes.second) == column->second.shape && (!found || width_is_row))
        found = axes;
    }
    if (!found)
      refuse(name, fmt::format("has shape {}, which is no part of the parameter's {}",
                               shape_text(stored_.at(name).shape), shape_text(parameter.shape)));
    return *found;
  }
  static Shape shape_on(const Parameter& parameter, const Axes& axes) {
    Shape shape;
    for (const size_t axis : axes) shape.push_back(parameter.shape[axis]);
    return shape;
  }

  /// Of a matrix of ours the rows are the smaller axis, as T5X's heuristic has it for those without layers:
  /// where it is the other way round in the stack, v_row and v_col change places.
  bool is_swapped(const Parameter& parameter, const std::string& name) const {
    if (!is_factored(name)) return false;
    Axes all(parameter.shape.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    const Shape ours = source(parameter, "", parameter.shape, all, 0).shape;
    if (ours.size() != 2) return false;
    const Axes rows = factors_of(parameter, name).first;
    const bool first_is_row =
        std::count(rows.begin(), rows.end(), parameter.inner_axes().front()) > 0;
    return first_is_row != (ours[0] <= ours[1]);
  }

  static Source source(const Parameter& parameter, const std::string& stored, const Shape& shape,
                       const Axes& axes, int64_t layer) {
    Source source{.stored = stored, .shape = {}, .layer = layer};
    bool joins = false;
    for (size_t i = 0; i < axes.size(); ++i) {
      if (axes[i] == parameter.layers) {
        source.layer_axis = static_cast<int>(i);
        continue;
      }
      if (joins) {
        source.shape.back() *= shape[i];
        source.inner = shape[i];
        source.joined = static_cast<int>(source.shape.size()) - 1;
      } else {
        source.shape.push_back(shape[i]);
      }
      joins = axes[i] == parameter.heads;
    }
    return source;
  }

  const std::map<std::string, StoredTensor>& stored_;
  const std::string& where_;
  bool has_momentum_ = false;  // Adafactor's, of any parameter
  std::map<std::string, Parameter> parameters_;
  std::map<std::string, std::set<std::string>> subblocks_;
  std::map<std::string, Source> sources_;
};

}  // namespace

std::map<std::string, Source> layout_of(const std::map<std::string, StoredTensor>& stored,
                                        const std::string& where) {
  return Layout(stored, where).read();
}

}  // namespace quintet::t5x
