#include "checkpoint/t5x/t5x_writer.h"

#include <algorithm>
#include <functional>
#include <set>

#include "checkpoint/arrays/msgpack_writer.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/manifest.h"
#include "checkpoint/zarr/zarr_writer.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"

namespace quintet::t5x {
namespace {

constexpr int64_t kVersion = 3;
constexpr int64_t kChunkBytes = 4 << 20;    // T5X's are at most 64 MiB and as small as its shards
constexpr int64_t kInlineBytes = 16 << 20;  // what is more is a folder, whatever it is

std::string folder_name(std::string name) {
  std::replace(name.begin(), name.end(), '/', '.');
  return name;
}

ZarrLayout layout_of(const StoredTensor& tensor) {
  return {tensor.dtype, tensor.shape, zarr_chunks(tensor.shape, tensor.dtype, kChunkBytes)};
}

/// TensorStore's specification of an array, its path relative.
void add_specification(MsgpackWriter& out, const std::string& name, const StoredTensor& tensor) {
  out.dict(4);
  out.text("driver"), out.text("zarr");
  out.text("dtype"), out.text(tensor.dtype == DType::boolean ? "bool" : name_of(tensor.dtype));
  out.text("kvstore"), out.dict(2);
  out.text("driver"), out.text("file");
  out.text("path"), out.text(folder_name(name) + "/");
  out.text("metadata"), out.dict(3);
  out.text("chunks"), out.integers(layout_of(tensor).chunks);
  out.text("compressor"), out.dict(2);
  out.text("id"), out.text("gzip");
  out.text("level"), out.integer(1);
  out.text("shape"), out.integers(tensor.shape);
}

/// The slots that T5X's Adafactor keeps for every parameter, as a number of 0 where it has no use for them.
constexpr std::string_view kSlots[] = {"m", "v", "v_col", "v_row"};
const StoredTensor kUnused{DType::f32, {1}};

/// Names of the slots that are not there of parameters that have others.
std::set<std::string> unused_slots(const StoredTensors& tensors) {
  constexpr std::string_view kStates = "state/param_states/";
  std::set<std::string> unused;
  for (const auto& [name, tensor] : tensors) {
    if (!name.starts_with(kParameterPrefix)) continue;
    const auto slot_of = [&, &full = name](std::string_view slot) {
      return fmt::format("{}{}/{}", kStates, full.substr(kParameterPrefix.size()), slot);
    };
    const auto is_there = [&](std::string_view slot) { return tensors.contains(slot_of(slot)); };
    if (std::none_of(std::begin(kSlots), std::end(kSlots), is_there)) continue;
    for (const std::string_view slot : kSlots)
      if (!is_there(slot)) unused.insert(slot_of(slot));
  }
  return unused;
}

/// Names as nested dictionaries.
struct Tree {
  std::map<std::string, Tree> members;
  std::string name;  // of a leaf

  void add(const std::string& full, size_t from = 0) {
    const size_t end = full.find('/', from);
    Tree& member = members[full.substr(from, end - from)];
    if (end == std::string::npos)
      member.name = full;
    else
      member.add(full, end + 1);
  }
  void write(MsgpackWriter& out, const std::function<void(const std::string& name)>& leaf) const {
    if (members.empty()) return leaf(name);
    out.dict(members.size());
    for (const auto& [key, member] : members) {
      out.text(key);
      member.write(out, leaf);
    }
  }
};

}  // namespace

bool is_inline(const std::string& name, const StoredTensor& tensor) {
  if (name.starts_with(kParameterPrefix)) return false;
  const int64_t bytes = checked_bytes(tensor.dtype, tensor.shape, name);
  const bool is_placeholder = tensor.shape.size() == 1 && tensor.shape[0] == 1;
  const bool is_factor = name.ends_with("/v_row") || name.ends_with("/v_col");
  return tensor.shape.empty() || is_placeholder || (is_factor && bytes <= kInlineBytes);
}

Writer::Writer(std::filesystem::path folder, StoredTensors tensors, int host)
    : folder_(std::move(folder)), tensors_(std::move(tensors)), host_(host) {
  for (const auto& [name, tensor] : tensors_) check_tensor_name(name);
}

std::filesystem::path Writer::inline_path(const std::string& name) const {
  return folder_ / (".inline-" + folder_name(name));
}

void Writer::begin() { make_folders(folder_); }

void Writer::write(const std::string& name, const HostArray& tensor) {
  if (!is_inline(name, tensors_.at(name)))
    return write_zarr(folder_ / folder_name(name), layout_of(tensors_.at(name)), tensor.bytes);
  File file = File::create_new(inline_path(name));
  file.write_at(0, tensor.bytes);
  file.close_checked();
}

HostArray Writer::take_inline(const std::string& name) const {
  HostArray array(tensors_.at(name).dtype, tensors_.at(name).shape);
  const auto path = inline_path(name);
  File::open_read(path).read_at(0, array.bytes);
  remove_tree(path);
  return array;
}

void Writer::finish() {
  const std::set<std::string> unused = unused_slots(tensors_);
  Tree tree;
  for (const auto& [name, tensor] : tensors_) tree.add(name);
  for (const std::string& name : unused) tree.add(name);
  MsgpackWriter out;
  out.dict(2);
  out.text("version"), out.integer(kVersion);
  out.text("optimizer");
  const HostArray zero(kUnused.dtype, kUnused.shape);
  tree.write(out, [&](const std::string& name) {
    if (unused.contains(name)) return out.array(zero.dtype, zero.shape, zero.bytes);
    const StoredTensor& tensor = tensors_.at(name);
    if (!is_inline(name, tensor)) return add_specification(out, name, tensor);
    const HostArray array = take_inline(name);
    out.array(array.dtype, array.shape, array.bytes);
  });
  const std::string text = out.take();
  File file = File::create_new(folder_ / "checkpoint");
  file.reserve(std::ssize(text));
  file.write_at(0, std::as_bytes(std::span(text)));
  file.close_checked();
}

}  // namespace quintet::t5x
