// torch.save's files: a pickle of a dictionary of tensors, whose elements lie in storages beside it.

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "checkpoint/huggingface/formats.h"
#include "checkpoint/huggingface/pickle.h"
#include "checkpoint/huggingface/zip_archive.h"
#include "runtime/base/check.h"

namespace quintet::huggingface {
namespace {

using Kind = PickleValue::Kind;

const std::vector<std::string>& globals() {
  static const std::vector<std::string> names = {"collections.OrderedDict",
                                                 "torch._utils._rebuild_tensor_v2",
                                                 "torch._utils._rebuild_parameter",
                                                 "torch._utils._rebuild_tensor",
                                                 "torch.*Storage",
                                                 "torch.nn.parameter.Parameter"};
  return names;
}

DType dtype_of_storage(std::string_view name, const std::string& where) {
  constexpr std::pair<std::string_view, DType> kStorages[] = {
      {"torch.FloatStorage", DType::f32},     {"torch.HalfStorage", DType::f16},
      {"torch.BFloat16Storage", DType::bf16}, {"torch.DoubleStorage", DType::f64},
      {"torch.LongStorage", DType::i64},      {"torch.IntStorage", DType::i32},
      {"torch.CharStorage", DType::i8},       {"torch.ByteStorage", DType::u8},
      {"torch.BoolStorage", DType::boolean}};
  for (const auto& [known, dtype] : kStorages)
    if (name == known) return dtype;
  fail(ExitCode::kData, "{}: {} is not supported", where, name);
}

/// A storage's key and what the pickle says of it.
struct Storage {
  DType dtype = DType::f32;
  std::string key;
  int64_t elements = 0;
};

/// Where a storage's bytes are; their checksum if there is one.
struct StorageBytes {
  std::span<const std::byte> bytes;
  std::optional<Checksum> checksum;
};
using FindStorage = std::function<StorageBytes(const Storage&)>;

/// Tensors of a pickle's dictionary.
class TensorPickle {
 public:
  TensorPickle(Pickle& pickle, const std::string& where) : pickle_(pickle), where_(where) {}

  FileTensors read(const PickleValue& root, const FindStorage& find) {
    const PickleValue* dict = &root;
    check(dict->kind == Kind::dict, "holds no dictionary of tensors");
    // Training programs save the model's beside other things.
    for (size_t i = 0; i + 1 < root.items.size(); i += 2) {
      const PickleValue &key = pickle_.item(root, i), &value = pickle_.item(root, i + 1);
      const bool is_model =
          key.kind == Kind::text && (key.text == "state_dict" || key.text == "model");
      if (is_model && value.kind == Kind::dict) dict = &value;
    }
    FileTensors tensors;
    for (size_t i = 0; i + 1 < dict->items.size(); i += 2) {
      const std::string name(pickle_.text(pickle_.item(*dict, i)));
      FileTensor tensor = this->tensor(pickle_.item(*dict, i + 1), name, find);
      check(tensors.emplace(name, std::move(tensor)).second, "has tensor '" + name + "' twice");
    }
    return tensors;
  }

  Storage storage(const PickleValue& persistent) const {
    const PickleValue& id = pickle_.item(persistent, 0);
    check(persistent.kind == Kind::persistent && id.kind == Kind::tuple && id.items.size() >= 5 &&
              pickle_.text(pickle_.item(id, 0)) == "storage",
          "refers to something that is no storage");
    const PickleValue& type = pickle_.item(id, 1);
    check(type.kind == Kind::global, "a storage has no type");
    return {dtype_of_storage(type.text, where_), std::string(pickle_.text(pickle_.item(id, 2))),
            pickle_.integer(pickle_.item(id, 4))};
  }

 private:
  void check(bool condition, const std::string& what) const {
    QT_CHECK_AS(ExitCode::kData, condition, "{}: {}", where_, what);
  }

  FileTensor tensor(const PickleValue& value, const std::string& name,
                    const FindStorage& find) const {
    check(value.kind == Kind::call, "'" + name + "' is no tensor");
    const std::string_view function = pickle_.item(value, 0).text;
    const PickleValue& arguments = pickle_.item(value, 1);
    if (function == "torch._utils._rebuild_parameter") {
      const PickleValue& data = pickle_.item(arguments, 0);
      check(data.kind == Kind::call && pickle_.item(data, 0).text != function,
            "parameter '" + name + "' holds no tensor");
      return tensor(data, name, find);
    }
    check(function.starts_with("torch._utils._rebuild_tensor"), "'" + name + "' is no tensor");
    const Storage from = storage(pickle_.item(arguments, 0));
    FileTensor result{.dtype = from.dtype,
                      .shape = pickle_.integers(pickle_.item(arguments, 2)),
                      .strides = pickle_.integers(pickle_.item(arguments, 3)),
                      .first = pickle_.integer(pickle_.item(arguments, 1)),
                      .pieces = {}};
    const StorageBytes stored = find(from);
    check_inside(result, stored.bytes.size(), name);
    result.pieces = {stored.bytes};
    result.checksum = stored.checksum;
    return result;
  }

  /// Every element must lie in the storage.
  void check_inside(const FileTensor& tensor, size_t bytes, const std::string& name) const {
    const auto elements = static_cast<int64_t>(bytes) / size_of(tensor.dtype);
    bool inside = tensor.shape.size() == tensor.strides.size() && tensor.first >= 0 &&
                  tensor.first <= elements;
    int64_t last = tensor.first, count = 1;
    for (size_t i = 0; inside && i < tensor.shape.size(); ++i) {
      const int64_t size = tensor.shape[i], stride = tensor.strides[i];
      int64_t reach = 0;
      inside = size >= 0 && stride >= 0 &&
               !__builtin_mul_overflow(count, std::max<int64_t>(size, 1), &count) &&
               (size <= 1 || !__builtin_mul_overflow(size - 1, stride, &reach)) &&
               !__builtin_add_overflow(last, reach, &last);
      // A stride of 0 repeats elements: more than the storage has would grow in memory.
      inside = inside && count <= std::max<int64_t>(elements, 1);
    }
    const bool empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
    check(inside && (empty || last < elements),
          fmt::format("tensor '{}' of shape {} and strides {} from element {} does not lie in its "
                      "storage of {} elements",
                      name, shape_text(tensor.shape), shape_text(tensor.strides), tensor.first,
                      elements));
  }

  Pickle& pickle_;
  const std::string& where_;
};

FileTensors from_archive(std::span<const std::byte> bytes, const std::string& where) {
  const ZipArchive zip(bytes, where);
  const auto pickled =
      std::find_if(zip.entries().begin(), zip.entries().end(),
                   [](const ZipEntry& entry) { return entry.name.ends_with("/data.pkl"); });
  QT_CHECK_AS(ExitCode::kData, pickled != zip.entries().end(),
              "{}: has no entry data.pkl: a zip archive, but none of torch.save's", where);
  const uint32_t crc = crc32_of(pickled->bytes);
  QT_CHECK_AS(ExitCode::kData, crc == pickled->crc,
              "{}: entry {} is damaged: its checksum is {:08x}, expected {:08x}", where,
              pickled->name, crc, pickled->crc);
  const std::string prefix(pickled->name.substr(0, pickled->name.size() - 8));
  if (const ZipEntry* order = zip.find(prefix + "byteorder"))
    QT_CHECK_AS(ExitCode::kData,
                std::string_view(reinterpret_cast<const char*>(order->bytes.data()),
                                 order->bytes.size()) == "little",
                "{}: was written on a big-endian machine; save it again on another", where);
  Pickle pickle(pickled->bytes, where, globals());
  const PickleValue& root = pickle.load();
  return TensorPickle(pickle, where).read(root, [&](const Storage& storage) {
    const ZipEntry* entry = zip.find(prefix + "data/" + storage.key);
    QT_CHECK_AS(ExitCode::kData, entry != nullptr, "{}: has no storage '{}'; the file is damaged",
                where, storage.key);
    return StorageBytes{entry->bytes, Checksum{Checksum::Kind::crc32, entry->crc, entry->bytes}};
  });
}

/// The form before PyTorch 1.6: a magic number, a protocol, facts of the machine, the dictionary, the
/// storages' keys, each a pickle; then for each key the number of elements and the elements.
FileTensors from_row_of_pickles(std::span<const std::byte> bytes, const std::string& where) {
  Pickle pickle(bytes, where, globals());
  for (int i = 0; i < 3; ++i) pickle.load();
  Pickle keys(bytes.subspan(pickle.position()), where, globals());
  keys.load();  // the dictionary, read again below
  const PickleValue& list = keys.load();
  QT_CHECK_AS(ExitCode::kData, list.kind == Kind::list, "{}: has no list of storages", where);
  uint64_t at = pickle.position() + keys.position();
  const PickleValue& root = pickle.load();
  TensorPickle tensors(pickle, where);
  std::map<std::string, Storage> storages;
  tensors.read(root, [&](const Storage& storage) {
    storages[storage.key] = storage;
    return StorageBytes{bytes, std::nullopt};
  });
  std::map<std::string, std::span<const std::byte>> found;
  for (const uint32_t index : list.items) {
    const std::string key(keys.text(keys.at(index)));
    const auto storage = storages.find(key);
    QT_CHECK_AS(ExitCode::kData, storage != storages.end() && bytes.size() - at >= 8,
                "{}: storage '{}' at byte {} belongs to no tensor or is cut short", where, key, at);
    int64_t elements = 0;
    std::memcpy(&elements, bytes.data() + at, 8);
    at += 8;
    const uint64_t left =
        (bytes.size() - at) / static_cast<uint64_t>(size_of(storage->second.dtype));
    QT_CHECK_AS(ExitCode::kData, elements >= 0 && static_cast<uint64_t>(elements) <= left,
                "{}: storage '{}' of {} elements at byte {} ends outside of the file of {}", where,
                key, elements, at, bytes.size());
    const uint64_t size =
        static_cast<uint64_t>(elements) * static_cast<uint64_t>(size_of(storage->second.dtype));
    found[key] = bytes.subspan(at, size);
    at += size;
  }
  return tensors.read(root, [&](const Storage& storage) {
    QT_CHECK_AS(ExitCode::kData, found.contains(storage.key),
                "{}: has no storage '{}'; the file is cut short or damaged", where, storage.key);
    return StorageBytes{found.at(storage.key), std::nullopt};
  });
}

}  // namespace

FileTensors torch_tensors(std::span<const std::byte> bytes, const std::string& where) {
  if (ZipArchive::is_one(bytes)) return from_archive(bytes, where);
  QT_CHECK_AS(ExitCode::kData, bytes.size() > 2 && bytes[0] == std::byte{0x80},
              "{}: is no file of torch.save: expected a zip archive or a pickle", where);
  return from_row_of_pickles(bytes, where);
}

}  // namespace quintet::huggingface
