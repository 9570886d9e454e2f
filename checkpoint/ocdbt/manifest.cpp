#include "checkpoint/ocdbt/manifest.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace quintet::ocdbt {
namespace {

// A manifest holds at most 2^arity versions and as many references to older ones as its tree is high.
constexpr size_t kLargestManifest = 16 << 20;
constexpr size_t kLargestNode = 1 << 30;

/// Of a row of versions; the last is the newest.
void read_versions(ByteReader& body, int arity_log2, Manifest& manifest) {
  const uint64_t count = body.varint(uint64_t{1} << arity_log2);
  if (count == 0) body.refuse("holds no version");
  for (uint64_t i = 0, before = 0; i < count; ++i, before = manifest.generation) {
    manifest.generation = body.varint();
    if (manifest.generation <= before) body.refuse("generations that do not ascend");
  }
  for (uint64_t i = 0; i < count; ++i) manifest.root_height = body.u8();
  const Location root = read_locations(body, manifest.data_files, count).back();
  if (!root.is_missing()) manifest.root = root;
  for (uint64_t i = 0; i < 3 * count; ++i) body.varint();  // statistics
  for (uint64_t i = 0; i < count; ++i) body.u64();         // times
}

/// Of older versions: where the nodes of their tree lie, which nobody asks for.
void skip_older_versions(ByteReader& body, const Manifest& manifest) {
  constexpr uint64_t kHighest = 64;
  const uint64_t count = body.varint(kHighest);
  for (uint64_t i = 0; i < count; ++i) body.varint();  // generations
  read_locations(body, manifest.data_files, count);
  for (uint64_t i = 0; i < count; ++i) body.varint();  // numbers of generations
  for (uint64_t i = 0; i < count; ++i) body.u64();     // times
  for (uint64_t i = 0; i < count; ++i) body.u8();      // heights
}

/// False: the versions are in other files.
bool parse(std::span<const std::byte> encoded, const std::string& where, Manifest& manifest) {
  const Bytes bytes = open_body(encoded, kManifestMagic, kLargestManifest, where);
  ByteReader body(bytes.span(), where + ": body");
  constexpr size_t kUuid = 16;
  body.take(kUuid);
  const uint64_t kind = body.varint(1);
  body.varint();  // the largest value inside of a node
  manifest.max_node_bytes = body.varint(kLargestNode);
  const int arity_log2 = body.u8();
  if (arity_log2 < 1 || arity_log2 > 16)
    body.refuse(fmt::format("a tree of versions of arity 2^{}, expected 2^1 to 2^16", arity_log2));
  if (body.varint(1) == 1) body.u32();  // zstd's level
  if (kind == 1) return false;
  manifest.data_files = read_data_files(body, "", kLargestManifest);
  read_versions(body, arity_log2, manifest);
  skip_older_versions(body, manifest);
  body.expect_end();
  return true;
}

/// manifest.<generation> with the highest of them; empty: none.
std::string newest_numbered(const Files& files) {
  std::string newest;
  for (const std::string& name : files.names()) {
    constexpr std::string_view kPrefix = "manifest.";
    const bool is_numbered =
        name.size() == kPrefix.size() + 16 && name.starts_with(kPrefix) &&
        name.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string::npos;
    if (is_numbered) newest = std::max(newest, name);
  }
  return newest;
}

}  // namespace

Manifest read_manifest(Files& files) {
  Manifest manifest;
  const std::string where = files.where(kManifestName);
  if (parse(files.bytes(kManifestName), where, manifest)) return manifest;
  const std::string newest = newest_numbered(files);
  QT_CHECK_AS(ExitCode::kData, !newest.empty(),
              "{}: says that its versions are in files manifest.<number> beside it, and there is "
              "none; the copy is not complete",
              where);
  QT_CHECK_AS(ExitCode::kData, parse(files.bytes(newest), files.where(newest), manifest),
              "{}: holds no versions; the file is damaged", files.where(newest));
  return manifest;
}

}  // namespace quintet::ocdbt
