#pragma once
// ArrayRecord files, which are read by index: TensorFlow Datasets prepares data sets, and seqio caches, in this form,
// too. Source: array_record's cpp/layout.proto and reader.
//
//   write_array_record("cache.array_record", 1, [&](std::string& record) { return next(record); });
//   const RecordFilePtr file = open_record_file("cache.array_record", {});

#include <filesystem>
#include <functional>
#include <string>

#include "data/sources/record_files.h"

namespace quintet::data {

/// Writes the records that `next` gives until it returns false, `group_size` of them to a chunk: what is decompressed
/// to read one. Throws kDisk.
void write_array_record(const std::filesystem::path& path, int64_t group_size,
                        const std::function<bool(std::string& record)>& next);

}  // namespace quintet::data
