#pragma once
// The records of a set of files, by number, in seqio's order (interleave.h). What a record is,
// the kind of file says: a line, a TFRecord.
//
//   RecordFiles files({open_tfrecord_file("a", {}), open_tfrecord_file("b", {})});
//   std::string buffer;
//   parse(files.read(i, buffer));

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/examples/data_source.h"
#include "data/sources/input_file.h"
#include "data/sources/interleave.h"

namespace quintet::data {

/// One file. Immutable and safe to use from several threads.
class RecordFile {
 public:
  virtual ~RecordFile() = default;
  virtual const std::string& path() const = 0;
  virtual int64_t size() const = 0;
  /// Record i, 0 <= i < size(), which lies in `buffer`. Throws kData naming where(i).
  virtual std::string_view read(int64_t i, std::string& buffer) const = 0;
  /// "notes.txt:12"
  virtual std::string where(int64_t i) const = 0;
};
using RecordFilePtr = std::shared_ptr<const RecordFile>;

/// The lines of a text file without their ends; a byte order mark is left out. Throws kData: not a
/// readable file, damaged compression. Reading throws for bad UTF-8 and over-long lines.
RecordFilePtr open_line_file(const std::string& path, const FileOptions& options,
                             bool skip_blank_lines);
/// The records of a TFRecord or ArrayRecord file (array_record_file.h), whichever it is, checksums verified. A TFRecord
/// whose length is damaged, and what lies up to the next good one, is one record that cannot be read; unless options say
/// to skip bad examples, it is an error here.
RecordFilePtr open_record_file(const std::string& path, const FileOptions& options);
RecordFilePtr open_tfrecord_file(InputFile file, const FileOptions& options);
/// Records [begin, end) of a file.
RecordFilePtr slice(RecordFilePtr file, int64_t begin, int64_t end);

/// A reader of the files' records.
std::shared_ptr<const Reader> file_reader(std::vector<RecordFilePtr> files,
                                          FileDataSource::ParseRecord parse,
                                          const FileOptions& options);

class RecordFiles {
 public:
  explicit RecordFiles(std::vector<RecordFilePtr> files, const FileOptions& options = {});
  int64_t size() const { return order_.size(); }
  std::string_view read(int64_t i, std::string& buffer) const;
  std::vector<std::string> paths() const;
  /// "file:line"; for -1 the names of the files.
  std::string where(int64_t i) const;

 private:
  std::vector<RecordFilePtr> files_;
  Interleave order_;
};

}  // namespace quintet::data
