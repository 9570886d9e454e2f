#pragma once
// TFRecord framing: length, masked CRC-32C of the length, bytes, masked CRC-32C of the bytes; all
// little-endian. TensorBoard's event files and seqio's caches are sequences of such records.
//
//   append_tfrecord(file_bytes, serialized);
//   for (std::string_view rest = file_bytes; auto record = next_tfrecord(rest, path);)
//     use(*record);

#include <optional>
#include <string>
#include <string_view>

namespace quintet {

void append_tfrecord(std::string& out, std::string_view record);

/// The record at the front of `rest`, which it is taken off; nullopt at the end. Throws kData
/// naming `where` if the record is cut short or one of its checksums is wrong.
std::optional<std::string_view> next_tfrecord(std::string_view& rest, const std::string& where);

}  // namespace quintet
