#include "checkpoint/hdf5_writer.h"

#include <hdf5.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "checkpoint/arrays/blocks.h"
#include "checkpoint/bytes/fletcher32.h"
#include "checkpoint/snapshot.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/crc32c.h"

namespace quintet {
namespace {

// Large enough that the library's work per chunk does not show, small enough to stay in cache.
constexpr int64_t kChunkBytes = 1 << 20;
constexpr int64_t kFletcherBytes = 4;

/// The first "errno = N" in the library's error stack, else EIO.
int stack_errno() {
  int found = 0;
  const auto visit = [](unsigned, const H5E_error2_t* error, void* data) -> herr_t {
    const char* at = error->desc != nullptr ? std::strstr(error->desc, "errno = ") : nullptr;
    int& number = *static_cast<int*>(data);
    if (number == 0 && at != nullptr) number = std::atoi(at + std::strlen("errno = "));
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, visit, &found);
  return found != 0 ? found : EIO;
}

/// Every call of the library goes through this: a negative result is a disk error on `path`.
template <typename T>
T checked(T result, const std::filesystem::path& path, const char* action) {
  if (result < 0) fail_disk(path, action, stack_errno());
  return result;
}

/// Owns an identifier. Closing what a failed write left behind may fail again; that is no news.
class Id {
 public:
  using Close = herr_t (*)(hid_t);
  Id(hid_t id, Close close) : id_(id), close_(close) {}
  ~Id() {
    if (id_ >= 0) close_(id_);
  }
  Id(Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Id& operator=(Id&&) = delete;
  operator hid_t() const { return id_; }
  hid_t release() { return std::exchange(id_, -1); }

 private:
  hid_t id_;
  Close close_;
};

/// One thread in the library at a time, with its exit handler and its printing switched off.
std::unique_lock<std::mutex> enter_library() {
  static std::mutex mutex;
  std::unique_lock<std::mutex> lock(mutex);
  [[maybe_unused]] static const herr_t once = H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // a setting of each thread
  return lock;
}

}  // namespace

void start_hdf5() {
  const auto lock = enter_library();
  QT_CHECK_AS(ExitCode::kEnvironment, H5open() >= 0,
              "the HDF5 library cannot start; is there memory for it (ulimit -v)?");
}

namespace {

Id small_float(size_t sign, size_t exponent_bits, size_t mantissa_bits, size_t bias) {
  Id type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  H5Tset_fields(type, sign, mantissa_bits, exponent_bits, 0, mantissa_bits);
  H5Tset_size(type, 2);
  H5Tset_ebias(type, bias);
  return type;
}

/// As h5py and PyTables know NumPy's bool.
Id boolean() {
  Id type(H5Tenum_create(H5T_STD_I8LE), H5Tclose);
  int8_t value = 0;
  H5Tenum_insert(type, "FALSE", &value);
  value = 1;
  H5Tenum_insert(type, "TRUE", &value);
  return type;
}

Id file_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return {H5Tcopy(H5T_IEEE_F32LE), H5Tclose};
    case DType::f64:
      return {H5Tcopy(H5T_IEEE_F64LE), H5Tclose};
    case DType::bf16:
      return small_float(15, 8, 7, 127);
    case DType::f16:
      return small_float(15, 5, 10, 15);
    case DType::i32:
      return {H5Tcopy(H5T_STD_I32LE), H5Tclose};
    case DType::i64:
      return {H5Tcopy(H5T_STD_I64LE), H5Tclose};
    case DType::u8:
      return {H5Tcopy(H5T_STD_U8LE), H5Tclose};
    case DType::i8:
      return {H5Tcopy(H5T_STD_I8LE), H5Tclose};
    case DType::u32:
      return {H5Tcopy(H5T_STD_U32LE), H5Tclose};
    case DType::boolean:
      return boolean();
  }
  throw Bug("hdf5_writer: dtype without a type on disk");
}

/// Element that stands for "the file with this part is not there".
std::vector<std::byte> missing_value(DType dtype) {
  const auto bytes = [](auto value) {
    const auto* data = reinterpret_cast<const std::byte*>(&value);
    return std::vector<std::byte>(data, data + sizeof(value));
  };
  switch (dtype) {
    case DType::f32:
      return bytes(std::numeric_limits<float>::quiet_NaN());
    case DType::f64:
      return bytes(std::numeric_limits<double>::quiet_NaN());
    case DType::bf16:
      return bytes(uint16_t{0x7fc0});
    case DType::f16:
      return bytes(uint16_t{0x7e00});
    case DType::i32:
      return bytes(std::numeric_limits<int32_t>::min());
    case DType::i64:
      return bytes(std::numeric_limits<int64_t>::min());
    case DType::i8:
      return bytes(std::numeric_limits<int8_t>::min());
    default:
      return std::vector<std::byte>(static_cast<size_t>(size_of(dtype)), std::byte{0});
  }
}

std::vector<hsize_t> dims_of(const std::vector<int64_t>& sizes) {
  return {sizes.begin(), sizes.end()};
}

void write_attribute(hid_t file, const char* name, hid_t type, const void* value,
                     const std::filesystem::path& path) {
  Id space(H5Screate(H5S_SCALAR), H5Sclose);
  Id attribute(
      checked(H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT), path, "write"),
      H5Aclose);
  checked(H5Awrite(attribute, type, value), path, "write");
}

/// A new file with these bounds of the format, labelled.
Id create_file(const std::filesystem::path& path, H5F_libver_t high) {
  Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_libver_bounds(access, H5F_LIBVER_V18, high);
  H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
  H5Pset_file_locking(access, false, true);  // Lustre and NFS often have no locks
  Id creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation, false);  // same state, same bytes
  return {checked(H5Fcreate(path.c_str(), H5F_ACC_EXCL, creation, access), path, "create"),
          H5Fclose};
}

void write_label(hid_t file, const std::filesystem::path& path, const FileLabel& label) {
  write_attribute(file, "step", H5T_STD_I64LE, &label.step, path);
  write_attribute(file, "host", H5T_STD_I64LE, &label.host, path);
  write_attribute(file, "version", H5T_STD_I64LE, &kCheckpointVersion, path);
  Id text(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(text, label.run_id.size() + 1);
  write_attribute(file, "run_id", text, label.run_id.c_str(), path);
}

void close_file(Id& file, const std::filesystem::path& path) {
  checked(H5Fflush(file, H5F_SCOPE_GLOBAL), path, "write");
  checked(H5Fclose(file.release()), path, "write");
}

/// Sizes on disk, where a scalar is one element.
std::vector<int64_t> disk_sizes(const std::vector<int64_t>& sizes) {
  return sizes.empty() ? std::vector<int64_t>{1} : sizes;
}

// What HDF5 1.10 makes of these files, measured over 1 to 1000 tensors of rank 1 to 3 in up to
// three groups each, and rounded up.
constexpr int64_t kFileBytes = 8192;   // superblock, label, what is left of the last blocks
constexpr int64_t kGroupBytes = 128;   // with its link
constexpr int64_t kHeaderBytes = 320;  // of a dataset, with its link
constexpr int64_t kSmallBlock = 2048;  // smaller chunks share blocks of this size
constexpr int64_t kNodeEntries = 64;   // of the chunk index, a B-tree
constexpr int64_t kHeapBytes = 4096;   // of virtual mappings, at least

/// Headers of the datasets of these names and of the groups above them; a link has the last part of
/// a name.
int64_t header_bytes(const std::vector<std::string>& names) {
  const auto of = [](const std::string& name) {
    return static_cast<int64_t>(name.size() - (name.rfind('/') + 1));
  };
  std::set<std::string> groups;
  int64_t bytes = kFileBytes;
  for (const std::string& name : names) {
    bytes += kHeaderBytes + of(name);
    for (size_t end = name.find('/'); end != std::string::npos; end = name.find('/', end + 1))
      groups.insert(name.substr(0, end));
  }
  for (const std::string& group : groups) bytes += kGroupBytes + of(group);
  return bytes;
}

int64_t chunk_index_bytes(int64_t chunks, size_t rank) {
  const int64_t key = 8 * static_cast<int64_t>(rank + 2);
  const int64_t node = 24 + 8 * kNodeEntries + (kNodeEntries + 1) * key;
  // Nodes that split are left half full.
  return node * (chunks <= kNodeEntries ? 1 : 2 + 2 * chunks / kNodeEntries);
}

int descriptor_of(hid_t file, const std::filesystem::path& path) {
  void* handle = nullptr;
  checked(H5Fget_vfd_handle(file, H5P_DEFAULT, &handle), path, "reserve space");
  return *static_cast<int*>(handle);
}

void reserve(hid_t file, const std::filesystem::path& path, int64_t bytes) {
  reserve_space(descriptor_of(file, path), path, bytes);
}

Id dataset_options() {
  Id options(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(options, false);
  H5Pset_attr_phase_change(options, 0, 0);
  return options;
}

Id utf8_links() {
  Id links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_char_encoding(links, H5T_CSET_UTF8);
  return links;
}

/// A new dataset with the groups above it; those the library would make itself carry the time of day.
Id make_dataset(hid_t file, const std::string& name, hid_t type, hid_t space, hid_t options,
                const std::filesystem::path& path) {
  const Id links = utf8_links(), groups(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
  H5Pset_obj_track_times(groups, false);
  for (size_t end = name.find('/', 1); end != std::string::npos; end = name.find('/', end + 1)) {
    const std::string parent = name.substr(0, end);
    if (checked(H5Lexists(file, parent.c_str(), H5P_DEFAULT), path, "write") > 0) continue;
    Id(checked(H5Gcreate2(file, parent.c_str(), links, groups, H5P_DEFAULT), path, "write"),
       H5Gclose);
  }
  return {checked(H5Dcreate2(file, name.c_str(), type, space, links, options, H5P_DEFAULT), path,
                  "write"),
          H5Dclose};
}

/// Where the library put each chunk. The element bytes come first, then the padding of a chunk that
/// reaches over the edge and the Fletcher32 sum.
std::vector<Extent> extents_of(hid_t dataset, const std::vector<int64_t>& sizes,
                               const std::vector<int64_t>& chunk, int64_t element_bytes,
                               const std::filesystem::path& path) {
  std::vector<Extent> extents;
  for (const ChunkPlace& place : chunk_places(sizes, chunk)) {
    const std::vector<hsize_t> at = dims_of(place.origin);
    haddr_t address = 0;
    hsize_t size = 0;
    unsigned mask = 0;
    checked(H5Dget_chunk_info_by_coord(dataset, at.data(), &mask, &address, &size), path, "write");
    QT_ASSERT(address != HADDR_UNDEF && mask == 0);
    extents.push_back({static_cast<int64_t>(address), place.elements * element_bytes});
  }
  return extents;
}

/// A new dataset of the slice's chunks.
Id make_slice(hid_t file, const TensorSlice& slice, const std::string& dataset_name,
              const std::vector<int64_t>& sizes, const std::vector<int64_t>& chunk,
              const std::filesystem::path& path) {
  const std::vector<hsize_t> dims = dims_of(sizes), chunk_dims = dims_of(chunk);
  const int rank = static_cast<int>(sizes.size());
  const Id options = dataset_options(), type = file_type(slice.dtype);
  H5Pset_chunk(options, rank, chunk_dims.data());
  H5Pset_fletcher32(options);
  H5Pset_fill_time(options, H5D_FILL_TIME_NEVER);
  const Id space(H5Screate_simple(rank, dims.data(), nullptr), H5Sclose);
  return make_dataset(file, dataset_name, type, space, options, path);
}

/// Writes the chunks as the library's filter would, which takes several times as long for it.
void write_slice(hid_t file, const TensorSlice& slice, ManifestSlice& written,
                 const std::filesystem::path& path) {
  const auto sizes = disk_sizes(slice.sizes);
  const int64_t element = size_of(slice.dtype);
  const auto chunk = contiguous_chunk(sizes, element, kChunkBytes);
  const Id dataset = make_slice(file, slice, written.dataset, sizes, chunk, path);
  const auto chunk_bytes = static_cast<size_t>(checked_bytes(slice.dtype, chunk, slice.name));
  std::vector<std::byte> stored(chunk_bytes + kFletcherBytes);
  const std::byte* source = slice.data;
  for (const ChunkPlace& place : chunk_places(sizes, chunk)) {
    const auto bytes = std::span(source, static_cast<size_t>(place.elements * element));
    written.crc = crc32c(bytes, written.crc);
    const auto padding = std::copy(bytes.begin(), bytes.end(), stored.begin());
    std::fill(padding, stored.end(), std::byte{0});
    const uint32_t sum = fletcher32(std::span(stored).first(chunk_bytes));
    std::memcpy(stored.data() + chunk_bytes, &sum, sizeof sum);
    checked(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, dims_of(place.origin).data(), stored.size(),
                           stored.data()),
            path, "write");
    source += bytes.size();
  }
  written.extents = extents_of(dataset, sizes, chunk, element, path);
  start_writing_out(descriptor_of(file, path));
}

}  // namespace

int64_t most_data_bytes(const std::vector<TensorSlice>& slices) {
  std::vector<std::string> names;
  int64_t bytes = 0;
  for (const TensorSlice& slice : slices) {
    if (bytes_of(slice) == 0) continue;
    names.push_back(slice.name);
    const auto sizes = disk_sizes(slice.sizes);
    const auto chunk = contiguous_chunk(sizes, size_of(slice.dtype), kChunkBytes);
    int64_t count = 1;
    for (size_t i = 0; i < sizes.size(); ++i) count *= (sizes[i] + chunk[i] - 1) / chunk[i];
    const int64_t of_chunk = checked_bytes(slice.dtype, chunk, slice.name) + kFletcherBytes;
    // Of a shared block up to half stays empty.
    bytes += count * (of_chunk < kSmallBlock ? 2 * of_chunk : of_chunk) +
             chunk_index_bytes(count, sizes.size());
  }
  return bytes + header_bytes(names);
}

int64_t most_state_bytes(const Manifest& manifest) {
  std::vector<std::string> names;
  int64_t bytes = 0;
  for (const auto& [name, tensor] : manifest.tensors) {
    names.push_back(name);
    int64_t mappings = 16;
    for (const ManifestSlice& slice : tensor.slices)
      mappings +=
          80 + 32 * static_cast<int64_t>(tensor.shape.size()) +
          static_cast<int64_t>(slice.dataset.size() + manifest.files.at(slice.file).name.size());
    // One block of a heap holds them; what is left of it may be too small for the next tensor's.
    bytes += mappings + std::min(mappings, mappings * mappings / (kHeapBytes / 2));
  }
  return bytes + kHeapBytes + header_bytes(names);
}

struct DataFile::Impl {
  std::filesystem::path path;
  Id file;
  std::map<std::string, int> seen = {};  // slices of a tensor so far
};

DataFile::DataFile(std::filesystem::path path, const std::vector<TensorSlice>& slices,
                   const FileLabel& label) {
  const auto lock = enter_library();
  Id file = create_file(path, H5F_LIBVER_V18);
  reserve(file, path, most_data_bytes(slices));
  write_label(file, path, label);
  impl_ = std::make_unique<Impl>(Impl{std::move(path), std::move(file)});
}

DataFile::~DataFile() {
  const auto lock = enter_library();
  impl_.reset();
}

ManifestSlice DataFile::write(const TensorSlice& slice) {
  const auto lock = enter_library();
  ManifestSlice written;
  written.dataset = "/" + slice.name;
  written.origin = slice.origin;
  written.sizes = slice.sizes;
  if (const int index = impl_->seen[slice.name]++; index > 0)
    written.dataset += fmt::format("#{}", index);
  if (bytes_of(slice) > 0) write_slice(impl_->file, slice, written, impl_->path);
  return written;
}

void DataFile::close() {
  const auto lock = enter_library();
  close_file(impl_->file, impl_->path);
}

namespace {

/// Scalars cannot be virtual and empty tensors have no parts: both lie in state.h5 itself.
void write_in_place(hid_t file, const std::string& name, const ManifestTensor& tensor,
                    const std::filesystem::path& folder, const Manifest& manifest) {
  const std::filesystem::path path = folder / kStateName;
  const Id options = dataset_options(), type = file_type(tensor.dtype);
  const std::vector<hsize_t> dims = dims_of(tensor.shape);
  const Id space(tensor.shape.empty()
                     ? H5Screate(H5S_SCALAR)
                     : H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
                 H5Sclose);
  const Id dataset = make_dataset(file, name, type, space, options, path);
  if (!tensor.shape.empty()) return;
  const ManifestSlice& slice = tensor.slices.at(0);
  std::vector<std::byte> value(static_cast<size_t>(size_of(tensor.dtype)));
  File::open_read(folder / manifest.files.at(slice.file).name)
      .read_at(slice.extents.at(0).offset, value);
  checked(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value.data()), path, "write");
}

void write_virtual(hid_t file, const std::string& name, const ManifestTensor& tensor,
                   const std::filesystem::path& path, const Manifest& manifest) {
  const int rank = static_cast<int>(tensor.shape.size());
  const std::vector<hsize_t> dims = dims_of(tensor.shape);
  const Id options = dataset_options(), type = file_type(tensor.dtype);
  const std::vector<std::byte> fill = missing_value(tensor.dtype);
  H5Pset_fill_value(options, type, fill.data());
  for (const ManifestSlice& slice : tensor.slices) {
    if (slice.extents.empty()) continue;
    const std::vector<hsize_t> start = dims_of(slice.origin), count = dims_of(slice.sizes);
    const Id target(H5Screate_simple(rank, dims.data(), nullptr), H5Sclose);
    const Id source(H5Screate_simple(rank, count.data(), nullptr), H5Sclose);
    H5Sselect_hyperslab(target, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr);
    checked(H5Pset_virtual(options, target, manifest.files.at(slice.file).name.c_str(),
                           slice.dataset.c_str(), source),
            path, "write");
  }
  const Id space(H5Screate_simple(rank, dims.data(), nullptr), H5Sclose);
  const Id dataset = make_dataset(file, name, type, space, options, path);
}

}  // namespace

void write_state_file(const std::filesystem::path& folder, const Manifest& manifest) {
  const auto lock = enter_library();
  const std::filesystem::path path = folder / kStateName;
  const FileLabel label{manifest.step, manifest.run_id, 0};
  Id file = create_file(path, H5F_LIBVER_V110);
  reserve(file, path, most_state_bytes(manifest));
  write_label(file, path, label);
  for (const auto& [name, tensor] : manifest.tensors) {
    bool in_place = tensor.shape.empty();
    for (int64_t size : tensor.shape) in_place = in_place || size == 0;
    if (in_place)
      write_in_place(file, name, tensor, folder, manifest);
    else
      write_virtual(file, name, tensor, path, manifest);
  }
  close_file(file, path);
}

}  // namespace quintet
