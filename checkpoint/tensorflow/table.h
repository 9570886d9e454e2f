#pragma once
// The file that holds the index of a TensorFlow checkpoint: LevelDB's table of sorted keys. Source: google/leveldb's
// description of tables; tensorflow, core/lib/io/table.
//
//   for_each_entry(bytes, "model.ckpt-3.index", [&](std::string_view key, std::string_view value) { ... });

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace quintet::tensorflow {

/// All entries, by ascending key. Throws ExitCode::kData naming `where` and the byte: a footer or a block that
/// is damaged (each has a CRC-32C) or lies outside of the file, keys that do not ascend, and more of them than
/// the bytes allow.
void for_each_entry(std::span<const std::byte> table, const std::string& where,
                    const std::function<void(std::string_view key, std::string_view value)>& visit);

}  // namespace quintet::tensorflow
