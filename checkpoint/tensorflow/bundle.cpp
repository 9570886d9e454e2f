#include "checkpoint/tensorflow/bundle.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "checkpoint/arrays/copy_block.h"
#include "checkpoint/arrays/file_tensor.h"
#include "checkpoint/finite.h"
#include "checkpoint/tensorflow/slice_key.h"
#include "checkpoint/tensorflow/table.h"
#include "checkpoint/tensorflow/tensor_bundle.pb.h"
#include "runtime/base/check.h"
#include "runtime/base/formats/crc32c.h"

namespace quintet::tensorflow {
namespace {

/// Of TensorFlow's enumeration DataType; nullopt: one that holds no numbers of ours.
std::optional<DType> dtype_from(int number) {
  constexpr std::pair<int, DType> kTypes[] = {
      {1, DType::f32}, {2, DType::f64},  {3, DType::i32},      {4, DType::u8},    {6, DType::i8},
      {9, DType::i64}, {22, DType::u32}, {10, DType::boolean}, {14, DType::bf16}, {19, DType::f16}};
  for (const auto& [known, dtype] : kTypes)
    if (number == known) return dtype;
  return std::nullopt;
}
constexpr int kText = 7;

template <typename Message>
Message parse(std::string_view bytes, const std::string& where, const std::string& what) {
  Message message;
  QT_CHECK_AS(ExitCode::kData, message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())),
              "{}: the entry of {} is no message of TensorFlow's; the file is damaged", where,
              what);
  return message;
}

std::string quoted(const std::string& name) { return "'" + name + "'"; }

/// A slice as its key has it, and as a block.
struct Extents {
  std::vector<int64_t> starts, lengths, origin, sizes;
};

Extents extents_of(const tf::TensorSlice& slice, const std::vector<int64_t>& shape,
                   const std::string& where) {
  Extents at;
  bool inside = slice.extent_size() == std::ssize(shape);
  for (size_t i = 0; inside && i < shape.size(); ++i) {
    const auto& extent = slice.extent(static_cast<int>(i));
    at.starts.push_back(extent.has_length() ? extent.start() : 0);
    at.lengths.push_back(extent.has_length() ? extent.length() : kWholeAxis);
    at.origin.push_back(at.starts.back());
    at.sizes.push_back(extent.has_length() ? extent.length() : shape[i]);
    inside = at.origin[i] >= 0 && at.sizes[i] >= 0 && at.origin[i] <= shape[i] &&
             at.sizes[i] <= shape[i] - at.origin[i];
  }
  QT_CHECK_AS(ExitCode::kData, inside, "{}: a slice lies outside of its shape {}", where,
              shape_text(shape));
  return at;
}

/// Every element must be in one slice: none is in two, and they are as many as the tensor has.
void check_tiled(const BundleTensor& tensor, const std::string& where) {
  constexpr size_t kMostSlices = 4096;
  QT_CHECK_AS(ExitCode::kData, tensor.slices.size() <= kMostSlices, "{}: has {} slices", where,
              tensor.slices.size());
  const auto meet = [](const BundleSlice& a, const BundleSlice& b) {
    for (size_t i = 0; i < a.origin.size(); ++i)
      if (a.origin[i] >= b.origin[i] + b.sizes[i] || b.origin[i] >= a.origin[i] + a.sizes[i])
        return false;
    return true;
  };
  size_t bytes = 0, all = static_cast<size_t>(size_of(tensor.dtype));
  bool good = true;
  for (const int64_t size : tensor.shape)
    good = good && !__builtin_mul_overflow(all, static_cast<size_t>(size), &all);
  for (const BundleSlice& slice : tensor.slices) {
    for (const BundleSlice* other = tensor.slices.data(); other != &slice; ++other)
      good = good && !meet(slice, *other);
    bytes += slice.bytes.size();
  }
  QT_CHECK_AS(ExitCode::kData, good && bytes == all,
              "{}: its slices do not tile its shape {}; the file is damaged", where,
              shape_text(tensor.shape));
}

}  // namespace

/// All entries as they are stored, and what opens the data files.
struct Bundle::Index {
  std::map<std::string, std::string, std::less<>> entries;
  int64_t shards = 0;
  const Shard& shard;
};

Bundle::Bundle(const std::filesystem::path& prefix) : where_(prefix.string() + ".index") {
  files_.push_back(std::make_unique<MappedFile>(where_));
  std::map<int64_t, size_t> opened;
  read_index(files_.front()->bytes(), [&](int64_t number, int64_t of) {
    if (const auto found = opened.find(number); found != opened.end())
      return files_[found->second]->bytes();
    opened[number] = files_.size();
    files_.push_back(std::make_unique<MappedFile>(
        fmt::format("{}.data-{:05}-of-{:05}", prefix.string(), number, of)));
    return files_.back()->bytes();
  });
}

Bundle::Bundle(std::span<const std::byte> index, std::string where, const Shard& shard)
    : where_(std::move(where)) {
  read_index(index, shard);
}

void Bundle::read_index(std::span<const std::byte> bytes, const Shard& shard) {
  Index index{.entries = {}, .shards = 0, .shard = shard};
  for_each_entry(bytes, where_, [&](std::string_view key, std::string_view value) {
    index.entries.emplace_hint(index.entries.end(), key, value);
  });
  const auto first = index.entries.find("");
  QT_CHECK_AS(ExitCode::kData, first != index.entries.end(),
              "{}: has no header: a table, but none of a TensorFlow checkpoint", where_);
  const auto header = parse<tf::BundleHeader>(first->second, where_, "the header");
  QT_CHECK_AS(ExitCode::kData, header.endianness() == 0,
              "{}: was written on a big-endian machine; save it again on another", where_);
  constexpr int kMostShards = 99'999;  // of five digits
  QT_CHECK_AS(ExitCode::kData, header.num_shards() > 0 && header.num_shards() <= kMostShards,
              "{}: says {} data files, expected 1 to {}", where_, header.num_shards(), kMostShards);
  index.shards = header.num_shards();
  for (const auto& [key, message] : index.entries)
    if (!key.empty() && key[0] != '\0') add(index, key, message);
  check_no_overlap();
}

void Bundle::add(const Index& index, const std::string& name, const std::string& message) {
  const auto entry = parse<tf::BundleEntry>(message, where_, quoted(name));
  if (entry.dtype() == kText) return;
  const std::optional<DType> dtype = dtype_from(entry.dtype());
  QT_CHECK_AS(ExitCode::kData, dtype.has_value(),
              "{}: tensor '{}' is of TensorFlow's type {}, which is not read", where_, name,
              entry.dtype());
  BundleTensor tensor{.dtype = *dtype, .shape = {}, .slices = {}};
  for (const auto& dim : entry.shape().dim()) tensor.shape.push_back(dim.size());
  const std::vector<int64_t> zeros(tensor.shape.size());
  if (entry.slices().empty()) {
    tensor.slices = {slice_of(index, name, message, *dtype, zeros, tensor.shape)};
    tensors_[name] = std::move(tensor);
    return;
  }
  for (const auto& part : entry.slices()) {
    const Extents at = extents_of(part, tensor.shape, fmt::format("{}: tensor '{}'", where_, name));
    const auto stored = index.entries.find(slice_key(name, at.starts, at.lengths));
    QT_CHECK_AS(ExitCode::kData, stored != index.entries.end(),
                "{}: the slice of tensor '{}' at [{}] is missing; the file is damaged", where_,
                name, fmt::join(at.origin, ", "));
    tensor.slices.push_back(slice_of(index, name, stored->second, *dtype, at.origin, at.sizes));
  }
  check_tiled(tensor, fmt::format("{}: tensor '{}'", where_, name));
  tensors_[name] = std::move(tensor);
}

BundleSlice Bundle::slice_of(const Index& index, const std::string& name, std::string_view message,
                             DType dtype, std::vector<int64_t> origin,
                             std::vector<int64_t> sizes) const {
  const auto entry = parse<tf::BundleEntry>(message, where_, quoted(name));
  QT_CHECK_AS(ExitCode::kData, dtype_from(entry.dtype()) == dtype,
              "{}: a slice of tensor '{}' is of another type than the tensor", where_, name);
  int64_t bytes = size_of(dtype);
  bool good = true;
  for (const int64_t size : sizes)
    good = good && size >= 0 && !__builtin_mul_overflow(bytes, size, &bytes);
  QT_CHECK_AS(ExitCode::kData, good && bytes == entry.size(),
              "{}: tensor '{}' of {} {} is said to have {} bytes", where_, name, name_of(dtype),
              shape_text(sizes), entry.size());
  QT_CHECK_AS(ExitCode::kData, entry.shard_id() >= 0 && entry.shard_id() < index.shards,
              "{}: tensor '{}' is in data file {} of {}", where_, name, entry.shard_id(),
              index.shards);
  const auto shard = index.shard(entry.shard_id(), index.shards);
  const auto size = static_cast<int64_t>(shard.size());
  QT_CHECK_AS(ExitCode::kData,
              entry.offset() >= 0 && bytes <= size && entry.offset() <= size - bytes,
              "{}: the {} bytes of tensor '{}' from byte {} on end outside of data file {} of {} "
              "bytes; it is cut short",
              where_, bytes, name, entry.offset(), entry.shard_id(), size);
  return {std::move(origin), std::move(sizes),
          shard.subspan(static_cast<size_t>(entry.offset()), static_cast<size_t>(bytes)),
          entry.crc32c()};
}

/// TensorFlow writes one tensor after another.
void Bundle::check_no_overlap() const {
  std::map<const std::byte*, std::pair<const std::byte*, std::string>> ends;
  for (const auto& [name, tensor] : tensors_)
    for (const BundleSlice& slice : tensor.slices) {
      if (slice.bytes.empty()) continue;
      const std::byte *begin = slice.bytes.data(), *end = begin + slice.bytes.size();
      const auto next = ends.lower_bound(begin);
      const auto before = next == ends.begin() ? ends.end() : std::prev(next);
      const bool hits_next = next != ends.end() && next->first < end;
      const bool hits_before = before != ends.end() && before->second.first > begin;
      QT_CHECK_AS(ExitCode::kData, !hits_next && !hits_before,
                  "{}: tensors '{}' and '{}' share bytes; the file is damaged", where_, name,
                  (hits_next ? next : before)->second.second);
      ends[begin] = {end, name};
    }
}

int64_t Bundle::file_bytes() const {
  int64_t bytes = 0;
  for (const auto& file : files_) bytes += static_cast<int64_t>(file->bytes().size());
  return bytes;
}

void Bundle::release(std::span<const std::byte> bytes) const {
  for (const auto& file : files_) file->release(bytes);
}

int64_t Bundle::verify(const std::string& name) const {
  const BundleTensor& tensor = tensors_.at(name);
  int64_t not_finite = 0;
  for (const BundleSlice& slice : tensor.slices) {
    const uint32_t crc = masked_crc32c(crc32c(slice.bytes));
    QT_CHECK_AS(ExitCode::kData, crc == slice.crc,
                "{}: tensor '{}' is damaged: its CRC-32C is {:08x}, expected {:08x}", where_, name,
                crc, slice.crc);
    not_finite += count_not_finite(tensor.dtype, slice.bytes);
    release(slice.bytes);
  }
  return not_finite;
}

void Bundle::read(const std::string& name, const std::vector<int64_t>& origin,
                  const std::vector<int64_t>& sizes, std::byte* target) const {
  const BundleTensor& tensor = tensors_.at(name);
  const int64_t element = size_of(tensor.dtype);
  const std::vector<int64_t> to_strides = dense_strides(sizes);
  for (const BundleSlice& slice : tensor.slices) {
    const std::vector<int64_t> from_strides = dense_strides(slice.sizes);
    std::vector<int64_t> block(sizes.size());
    int64_t from = 0, to = 0;
    bool empty = false;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t begin = std::max(origin[i], slice.origin[i]);
      block[i] = std::min(origin[i] + sizes[i], slice.origin[i] + slice.sizes[i]) - begin;
      empty = empty || block[i] <= 0;
      from += (begin - slice.origin[i]) * from_strides[i];
      to += (begin - origin[i]) * to_strides[i];
    }
    if (empty) continue;
    copy_block(slice.bytes.data() + from * element, from_strides, target + to * element, to_strides,
               block, element);
    release(slice.bytes);
  }
}

}  // namespace quintet::tensorflow
