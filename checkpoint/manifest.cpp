#include "checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/bytes/byte_reader.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/crc32c.h"
#include "runtime/base/formats/json.h"
#include "runtime/base/formats/varint.h"

namespace quintet {
namespace {

constexpr std::string_view kFormat = "quintet-checkpoint";
constexpr std::string_view kTail = ",\n\"crc32c\":\"";  // then 8 hexadecimal digits and "}\n
constexpr std::string_view kEnd = "\"}\n";
constexpr size_t kMaxRankOnDisk = 31;   // HDF5 allows 32
constexpr size_t kMaxSlices = 1 << 16;  // a tensor: a block a rank
constexpr size_t kMaxOddSlices = 4096;  // of those that are no grid, compared in pairs

std::string hex(uint32_t crc) { return fmt::format("{:08x}", crc); }

uint32_t parse_hex(const Json& json) {
  const std::string text = json.as_string();
  uint32_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  QT_CHECK_AS(ExitCode::kData, text.size() == 8 && end.ptr == text.data() + 8,
              "{}: expected 8 hexadecimal digits, found '{}'", json.path(), text);
  return value;
}

std::string list(const std::vector<int64_t>& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ","));
}

nlohmann::ordered_json json_of(const ManifestFile& file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"crc32c", hex(file.crc)}};
}

nlohmann::ordered_json json_of(const ManifestTensor& tensor, const Manifest& manifest) {
  nlohmann::ordered_json slices = nlohmann::ordered_json::array();
  for (const ManifestSlice& slice : tensor.slices) {
    nlohmann::ordered_json extents = nlohmann::ordered_json::array();
    for (const Extent& extent : slice.extents) extents.push_back({extent.offset, extent.bytes});
    slices.push_back({{"file", manifest.files.at(slice.file).name},
                      {"dataset", slice.dataset},
                      {"origin", slice.origin},
                      {"sizes", slice.sizes},
                      {"crc32c", hex(slice.crc)},
                      {"extents", std::move(extents)}});
  }
  return {{"dtype", name_of(tensor.dtype)}, {"shape", tensor.shape}, {"slices", std::move(slices)}};
}

/// The whole text but for its own CRC: a file and a tensor a line.
std::string text_without_crc(const Manifest& manifest, const nlohmann::ordered_json& state) {
  const auto text = [](const nlohmann::ordered_json& json) { return json.dump(); };
  std::vector<std::string> files, tensors;
  for (const ManifestFile& file : manifest.files) files.push_back(text(json_of(file)));
  for (const auto& [name, tensor] : manifest.tensors)
    tensors.push_back(text(name) + ":" + text(json_of(tensor, manifest)));
  return fmt::format(
      "{{\n\"format\":{},\"version\":{},\n\"step\":{},\n\"run_id\":{},\n\"hosts\":{},\n"
      "\"files\":[\n{}],\n\"tensors\":{{\n{}}},\n\"state\":{}",
      text(kFormat), kCheckpointVersion, manifest.step, text(manifest.run_id), manifest.hosts,
      fmt::join(files, ",\n"), fmt::join(tensors, ",\n"), text(state));
}

/// Of the text before the last member; throws if the CRC there is another or is not there.
void check_crc(const std::string& text, const std::string& where) {
  const size_t tail = kTail.size() + 8 + kEnd.size();
  const bool has_tail = text.size() > tail && text.ends_with(kEnd) &&
                        text.compare(text.size() - tail, kTail.size(), kTail) == 0;
  QT_CHECK_AS(ExitCode::kData, has_tail, "{}: {} bytes, cut short or not a checkpoint's manifest",
              where, text.size());
  const std::string_view body(text.data(), text.size() - tail);
  const std::string found = text.substr(text.size() - kEnd.size() - 8, 8);
  QT_CHECK_AS(ExitCode::kData, found == hex(crc32c(body)),
              "{}: damaged: CRC-32C is {}, the file says {}", where, hex(crc32c(body)), found);
}

std::vector<ManifestFile> parse_files(const Json& json, int64_t hosts) {
  std::vector<ManifestFile> files;
  std::set<std::string> known{kStateName};
  for (int64_t host = 0; host < hosts; ++host) known.insert(data_file_name(host, hosts));
  for (const Json& item : json.items()) {
    ManifestFile file{item["name"].as_string(), item["bytes"].as_int(), parse_hex(item["crc32c"])};
    QT_CHECK_AS(ExitCode::kData, known.erase(file.name) == 1,
                "{}: {} is not a name of a checkpoint's file, or is there twice", item.path(),
                item["name"].raw().dump());
    QT_CHECK_AS(ExitCode::kData, file.bytes >= 0, "{}: negative size", item.path());
    files.push_back(std::move(file));
  }
  return files;
}

ManifestSlice parse_slice(const Json& json, const ManifestTensor& tensor,
                          const std::map<std::string, size_t>& file_index,
                          const std::vector<ManifestFile>& files) {
  ManifestSlice slice;
  const auto file = file_index.find(json["file"].as_string());
  QT_CHECK_AS(ExitCode::kData, file != file_index.end(), "{}: file '{}' is not listed", json.path(),
              json["file"].as_string());
  slice.file = file->second;
  slice.dataset = json["dataset"].as_string();
  slice.origin = json["origin"].as_ints();
  slice.sizes = json["sizes"].as_ints();
  slice.crc = parse_hex(json["crc32c"]);
  const size_t rank = tensor.shape.size();
  bool inside = slice.origin.size() == rank && slice.sizes.size() == rank;
  for (size_t i = 0; inside && i < rank; ++i)
    inside = slice.origin[i] >= 0 && slice.sizes[i] >= 0 && slice.sizes[i] <= tensor.shape[i] &&
             slice.origin[i] <= tensor.shape[i] - slice.sizes[i];
  QT_CHECK_AS(ExitCode::kData, inside, "{}: block at {} of sizes {} is not inside the tensor's {}",
              json.path(), list(slice.origin), list(slice.sizes), list(tensor.shape));
  int64_t total = 0;
  for (const Json& item : json["extents"].items()) {
    const Extent extent{item[0].as_int(), item[1].as_int()};
    const int64_t end = files[slice.file].bytes;
    QT_CHECK_AS(ExitCode::kData,
                extent.offset >= 0 && extent.bytes > 0 && extent.bytes <= end &&
                    extent.offset <= end - extent.bytes,
                "{}: bytes {} from {} are not inside {} of {} bytes", item.path(), extent.bytes,
                extent.offset, files[slice.file].name, end);
    total += extent.bytes;  // at most 2^63: extents are disjoint, checked for the whole file
    QT_CHECK_AS(ExitCode::kData, total <= end, "{}: longer than its file", json.path());
    slice.extents.push_back(extent);
  }
  const int64_t want = checked_bytes(tensor.dtype, slice.sizes, json.path());
  QT_CHECK_AS(ExitCode::kData, total == want, "{}: holds {} bytes, its sizes need {}", json.path(),
              total, want);
  return slice;
}

/// Appends what ByteReader reads.
class ByteWriter {
 public:
  void number(int64_t value) { append_varint(bytes_, static_cast<uint64_t>(value)); }
  void text(std::string_view text) {
    number(std::ssize(text));
    bytes_ += text;
  }
  template <typename Items, typename Write>
  void list(const Items& items, Write write) {
    number(std::ssize(items));
    for (const auto& item : items) write(item);
  }
  void numbers(const std::vector<int64_t>& values) {
    list(values, [&](int64_t value) { number(value); });
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Whether all slices are cells of one grid, none twice: as a mesh writes them. Then they are disjoint.
bool are_cells_of_a_grid(const std::vector<ManifestSlice>& slices) {
  std::set<std::vector<int64_t>> origins;
  for (const ManifestSlice& slice : slices) {
    if (slice.sizes != slices.front().sizes || !origins.insert(slice.origin).second) return false;
    for (size_t i = 0; i < slice.sizes.size(); ++i)
      if (slice.sizes[i] == 0 || slice.origin[i] % slice.sizes[i] != 0) return false;
  }
  return true;
}

bool overlap(const ManifestSlice& a, const ManifestSlice& b) {
  for (size_t i = 0; i < a.sizes.size(); ++i)
    if (a.origin[i] >= b.origin[i] + b.sizes[i] || b.origin[i] >= a.origin[i] + a.sizes[i])
      return false;
  return true;
}

/// Disjoint blocks inside the tensor whose volumes add up to its own leave no hole.
void check_tiling(const std::string& where, const ManifestTensor& tensor) {
  int64_t total = 0;
  const bool disjoint = are_cells_of_a_grid(tensor.slices);
  QT_CHECK_AS(ExitCode::kData, disjoint || tensor.slices.size() <= kMaxOddSlices,
              "{}: more than {} slices that are no grid", where, kMaxOddSlices);
  for (size_t a = 0; a < tensor.slices.size(); ++a) {
    const int64_t bytes = checked_bytes(tensor.dtype, tensor.slices[a].sizes, where);
    QT_CHECK_AS(ExitCode::kData, !__builtin_add_overflow(total, bytes, &total),
                "{}: slices are too large", where);
    for (size_t b = 0; !disjoint && bytes > 0 && b < a; ++b)
      QT_CHECK_AS(ExitCode::kData,
                  checked_bytes(tensor.dtype, tensor.slices[b].sizes, where) == 0 ||
                      !overlap(tensor.slices[a], tensor.slices[b]),
                  "{}: slices {} and {} overlap", where, b, a);
  }
  const int64_t want = checked_bytes(tensor.dtype, tensor.shape, where);
  QT_CHECK_AS(ExitCode::kData, total == want, "{}: slices hold {} of the tensor's {} bytes", where,
              total, want);
}

ManifestTensor parse_tensor(const std::string& name, const Json& json, const std::string& where,
                            const std::map<std::string, size_t>& file_index,
                            const std::vector<ManifestFile>& files) {
  ManifestTensor tensor;
  try {
    check_tensor_name(name);
    tensor.dtype = dtype_from_name(json["dtype"].as_string());
  } catch (const Error& error) {
    fail(ExitCode::kData, "{}: {}", where, error.what());
  }
  tensor.shape = json["shape"].as_ints();
  QT_CHECK_AS(ExitCode::kData, tensor.shape.size() <= kMaxRankOnDisk, "{}: {} axes, at most {}",
              json.path(), tensor.shape.size(), kMaxRankOnDisk);
  checked_bytes(tensor.dtype, tensor.shape, json.path());
  QT_CHECK_AS(ExitCode::kData, json["slices"].size() <= kMaxSlices, "{}: more than {} slices",
              json.path(), kMaxSlices);
  for (const Json& item : json["slices"].items())
    tensor.slices.push_back(parse_slice(item, tensor, file_index, files));
  check_tiling(json.path(), tensor);
  return tensor;
}

void check_extents_disjoint(const Manifest& manifest, const std::string& where) {
  std::vector<std::vector<Extent>> of_file(manifest.files.size());
  for (const auto& [name, tensor] : manifest.tensors)
    for (const ManifestSlice& slice : tensor.slices)
      for (const Extent& extent : slice.extents) of_file[slice.file].push_back(extent);
  for (size_t file = 0; file < of_file.size(); ++file) {
    std::sort(of_file[file].begin(), of_file[file].end(),
              [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
    for (size_t i = 1; i < of_file[file].size(); ++i)
      QT_CHECK_AS(
          ExitCode::kData,
          of_file[file][i - 1].offset + of_file[file][i - 1].bytes <= of_file[file][i].offset,
          "{}: two slices share bytes of {}", where, manifest.files[file].name);
  }
}

}  // namespace

int64_t checked_bytes(DType dtype, const std::vector<int64_t>& sizes, const std::string& what) {
  int64_t bytes = size_of(dtype);
  bool fits = true, empty = false;
  for (int64_t size : sizes) {
    fits = fits && size >= 0;
    empty = empty || size == 0;
    if (size > 0) fits = fits && !__builtin_mul_overflow(bytes, size, &bytes);
  }
  QT_CHECK_AS(ExitCode::kData, fits, "{}: sizes {} are negative or too large", what, list(sizes));
  return empty ? 0 : bytes;
}

void check_tensor_name(const std::string& name) {
  size_t begin = 0;
  bool good = !name.empty() && name.size() <= 1024 && name.find('\0') == std::string::npos;
  while (good && begin <= name.size()) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    good = !part.empty() && part != "." && part != "..";
    begin = end + 1;
  }
  // Escaped: a NUL would end the message.
  QT_CHECK(good, "checkpoint: {} is not a tensor's name: expected parts joined by '/'",
           nlohmann::json(name.substr(0, 100))
               .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

std::string data_file_name(int64_t host, int64_t hosts) {
  return fmt::format("data-{:05}-of-{:05}.h5", host, hosts);
}

std::string manifest_text(const Manifest& manifest) {
  const Json state = [&] {
    try {
      return Json::parse(manifest.state_json, "checkpoint: state");
    } catch (const Error& error) {
      fail(ExitCode::kUsage, "{}", error.what());
    }
  }();
  QT_CHECK(state.is_object(), "checkpoint: state must be a JSON object");
  try {
    const std::string text = text_without_crc(manifest, state.raw());
    return fmt::format("{}{}{}{}", text, kTail, hex(crc32c(text)), kEnd);
  } catch (const nlohmann::json::exception&) {
    fail(ExitCode::kUsage, "checkpoint: a name is not valid UTF-8");
  }
}

Manifest parse_manifest(const std::string& text, const std::string& where) {
  check_crc(text, where);
  const Json json = Json::parse(text, where);
  QT_CHECK_AS(ExitCode::kData, json["format"].as_string() == kFormat,
              "{}: format is '{}', expected '{}'", where, json["format"].as_string(), kFormat);
  const int64_t version = json["version"].as_int();
  QT_CHECK_AS(ExitCode::kData, version == kCheckpointVersion,
              "{}: format version {}, this program knows {}; {}", where, version,
              kCheckpointVersion,
              version > kCheckpointVersion ? "read it with a newer quintet" : "it is not valid");
  Manifest manifest;
  manifest.step = json["step"].as_int();
  manifest.run_id = json["run_id"].as_string();
  manifest.hosts = json["hosts"].as_int();
  QT_CHECK_AS(ExitCode::kData, manifest.step >= 0 && manifest.hosts >= 1 && manifest.hosts < 100000,
              "{}: step {} or hosts {} out of range", where, manifest.step, manifest.hosts);
  manifest.files = parse_files(json["files"], manifest.hosts);
  QT_CHECK_AS(ExitCode::kData, static_cast<int64_t>(manifest.files.size()) == manifest.hosts + 1,
              "{}: lists {} files, {} hosts need {}", where, manifest.files.size(), manifest.hosts,
              manifest.hosts + 1);
  std::map<std::string, size_t> file_index;
  for (size_t i = 0; i < manifest.files.size(); ++i) file_index[manifest.files[i].name] = i;
  for (const auto& [name, tensor] : json["tensors"].members())
    manifest.tensors[name] = parse_tensor(name, tensor, where, file_index, manifest.files);
  check_extents_disjoint(manifest, where);
  QT_CHECK_AS(ExitCode::kData, json["state"].is_object(), "{}: state is not an object", where);
  manifest.state_json = json["state"].raw().dump();
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kManifestName;
  QT_CHECK_AS(ExitCode::kData, is_there(folder / "."), "{}: is not a folder, expected a checkpoint",
              folder.string());
  QT_CHECK_AS(ExitCode::kData, is_there(path), "{}: has no {}: not a native checkpoint, or damaged",
              folder.string(), kManifestName);
  const File file = File::open_read(path);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  Manifest manifest = parse_manifest(text, path.string());
  const std::string name = (folder / ".").lexically_normal().parent_path().filename().string();
  constexpr std::string_view kPrefix = "checkpoint_";
  if (name.starts_with(kPrefix))
    QT_CHECK_AS(ExitCode::kData, name == fmt::format("{}{}", kPrefix, manifest.step),
                "{}: holds step {}; the folder was renamed or files were exchanged",
                folder.string(), manifest.step);
  return manifest;
}

std::string packed(const Manifest& manifest) {
  ByteWriter out;
  out.number(manifest.step);
  out.text(manifest.run_id);
  out.number(manifest.hosts);
  out.text(manifest.state_json);
  out.list(manifest.files, [&](const ManifestFile& file) {
    out.text(file.name);
    out.number(file.bytes);
    out.number(file.crc);
  });
  out.list(manifest.tensors, [&](const auto& named) {
    out.text(named.first);
    out.number(static_cast<int64_t>(named.second.dtype));
    out.numbers(named.second.shape);
    out.list(named.second.slices, [&](const ManifestSlice& slice) {
      out.number(static_cast<int64_t>(slice.file));
      out.text(slice.dataset);
      out.numbers(slice.origin);
      out.numbers(slice.sizes);
      out.number(slice.crc);
      out.list(slice.extents, [&](const Extent& extent) {
        out.number(extent.offset);
        out.number(extent.bytes);
      });
    });
  });
  return out.bytes();
}

Manifest unpacked(std::string_view bytes) {
  ByteReader in(std::as_bytes(std::span(bytes)), "another host's manifest");
  const auto number = [&] { return static_cast<int64_t>(in.varint()); };
  const auto text = [&] { return std::string(in.text(in.varint())); };
  const auto list = [&](auto& items, auto read) {
    for (uint64_t left = in.varint(in.left()); left > 0; --left) items.push_back(read());
  };
  const auto numbers = [&] {
    std::vector<int64_t> all;
    list(all, number);
    return all;
  };
  // Members are read in the order in which they stand in braces.
  Manifest manifest{number(), text(), number(), {}, {}, text()};
  list(manifest.files, [&] {
    return ManifestFile{text(), number(), static_cast<uint32_t>(number())};
  });
  for (uint64_t left = in.varint(in.left()); left > 0; --left) {
    ManifestTensor& tensor = manifest.tensors[text()];
    tensor.dtype = static_cast<DType>(number());
    tensor.shape = numbers();
    list(tensor.slices, [&] {
      ManifestSlice slice{static_cast<size_t>(number()),   text(), numbers(), numbers(),
                          static_cast<uint32_t>(number()), {}};
      list(slice.extents, [&] { return Extent{number(), number()}; });
      return slice;
    });
  }
  in.expect_end();
  return manifest;
}

void merge_part(Manifest& whole, Manifest part) {
  const size_t offset = whole.files.size();
  whole.files.insert(whole.files.end(), part.files.begin(), part.files.end());
  for (auto& [name, tensor] : part.tensors) {
    ManifestTensor& into = whole.tensors[name];
    const bool same =
        into.slices.empty() || (into.dtype == tensor.dtype && into.shape == tensor.shape);
    QT_CHECK_AS(ExitCode::kPeer, same, "checkpoint: hosts disagree on dtype or shape of '{}'",
                name);
    into.dtype = tensor.dtype;
    into.shape = tensor.shape;
    for (ManifestSlice& slice : tensor.slices) {
      slice.file += offset;
      into.slices.push_back(std::move(slice));
    }
  }
}

}  // namespace quintet
