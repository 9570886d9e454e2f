#pragma once
// Files of separated values whose first line names the columns (RFC 4180).
//
//   question,answer
//   "Paris, France: capital?","a ""yes"""

#include "data/sources/record_files.h"

namespace quintet::data {

struct CsvFormat {
  char delimiter = ',';
  bool quoted = true;  // a field that begins with " ends at the next one that is not doubled
};

/// A record is the file's first line and the line itself, which may have newlines in quotes; blank
/// lines are left out. Throws kData: not a readable file, one without a header, damaged compression.
RecordFilePtr open_csv_file(const std::string& path, const FileOptions& options, CsvFormat format);
/// Features of such a record: texts under the header's names. Throws kData for another number of
/// values than the header has names, and quotes that do not end.
FileDataSource::ParseRecord parse_csv(CsvFormat format);

}  // namespace quintet::data
