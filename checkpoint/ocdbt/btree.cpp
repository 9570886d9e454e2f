#include "checkpoint/ocdbt/btree.h"

#include <fmt/format.h>

namespace quintet::ocdbt {
namespace {

constexpr uint64_t kMostEntries = 1 << 20, kLongestKey = 65535;

/// The keys of all entries, and of a node that is no leaf the prefixes of its children's.
void read_keys(ByteReader& body, BtreeNode& node, const std::string& prefix, size_t limit) {
  std::vector<BtreeEntry>& entries = node.entries;
  std::vector<size_t> shared = {0}, suffixes;  // shared: bytes that a key has of the one before
  for (size_t i = 1; i < entries.size(); ++i) shared.push_back(body.varint(kLongestKey));
  for (size_t i = 0; i < entries.size(); ++i) suffixes.push_back(body.varint(kLongestKey));
  if (node.height > 0)
    for (BtreeEntry& entry : entries) entry.prefix = body.varint(kLongestKey);
  size_t bytes = 0;
  std::string key;
  for (size_t i = 0; i < entries.size(); ++i) {
    const size_t length = shared[i] + suffixes[i];
    if (shared[i] > key.size() || length > kLongestKey || entries[i].prefix > length)
      body.refuse(fmt::format("key {} is shorter than its parts", i));
    if ((bytes += prefix.size() + length) > limit) body.refuse("keys are longer than in any store");
    const std::string_view suffix = body.text(suffixes[i]);
    if (i > 0 && std::string_view(key).substr(shared[i]) >= suffix)
      body.refuse(fmt::format("key {} does not come after the one before", i));
    key.resize(shared[i]);
    key += suffix;
    entries[i].key = prefix + key;
    if (node.height > 0) entries[i].prefix += prefix.size();
  }
}

void read_values(ByteReader& body, BtreeNode& node) {
  enum Kind : uint8_t { kInside, kInFile };
  for (BtreeEntry& entry : node.entries) entry.location.length = body.varint();
  std::vector<Kind> kinds;
  for (size_t i = 0; i < node.entries.size(); ++i)
    kinds.push_back(static_cast<Kind>(body.varint(kInFile)));
  for (size_t i = 0; i < node.entries.size(); ++i) {
    if (kinds[i] == kInside) continue;
    const uint64_t file = body.varint();
    if (file >= node.data_files.size())
      body.refuse(fmt::format("refers to data file {} of {}", file, node.data_files.size()));
    node.entries[i].location.file = &node.data_files[file];
  }
  for (size_t i = 0; i < node.entries.size(); ++i)
    if (kinds[i] == kInFile) node.entries[i].location.offset = body.varint();
  for (size_t i = 0; i < node.entries.size(); ++i)
    if (kinds[i] == kInside) node.entries[i].value = body.text(node.entries[i].location.length);
}

}  // namespace

BtreeNode read_btree_node(std::span<const std::byte> encoded, const std::string& prefix,
                          const std::string& base, size_t limit, const std::string& where) {
  BtreeNode node;
  node.body = open_body(encoded, kBtreeMagic, limit, where);
  ByteReader body(node.body.span(), where + ": body");
  node.height = body.u8();
  node.data_files = read_data_files(body, base, limit);
  const uint64_t count = body.varint(kMostEntries);
  // An entry takes two bytes at least: memory is asked for when they are there.
  if (count == 0 || count > body.left() / 2)
    body.refuse(fmt::format("{} entries in {} bytes", count, body.left()));
  node.entries.resize(count);
  read_keys(body, node, prefix, limit);
  if (node.height == 0) {
    read_values(body, node);
  } else {
    const std::vector<Location> children = read_locations(body, node.data_files, count);
    for (size_t i = 0; i < count; ++i) node.entries[i].location = children[i];
    for (size_t i = 0; i < 3 * count; ++i) body.varint();  // statistics
  }
  body.expect_end();
  return node;
}

}  // namespace quintet::ocdbt
