#pragma once
// The lines of a set of text files, by number. Plain files stay on disk (8 bytes of index a line);
// *.gz files are held decompressed in memory.

#include <cstdint>
#include <string>
#include <vector>

#include "data/data_source.h"

namespace quintet::data {

class LineFiles {
 public:
  /// Opens what the glob patterns of a split match, in the order of patterns and names. Throws
  /// kData: a pattern that matches nothing, a file that cannot be read, damaged gzip, no line at
  /// all.
  LineFiles(const SplitToFiles& files, const std::string& split, const FileOptions& options,
            bool skip_blank_lines);
  ~LineFiles();
  LineFiles(const LineFiles&) = delete;
  LineFiles& operator=(const LineFiles&) = delete;

  int64_t size() const { return first_line_.back(); }
  /// Line i without its end. Throws kData: bad UTF-8, too long, file changed since it was opened.
  void read(int64_t i, std::string& line) const;
  std::vector<std::string> files() const;
  /// "file:line"; for -1 the names of the files.
  std::string where(int64_t i) const;

 private:
  struct File;
  const File& file_of(int64_t& i) const;  // makes i an index into that file

  FileOptions options_;
  std::vector<File> files_;
  std::vector<int64_t> first_line_;  // of each file, and the total at the end
};

/// Names of the splits, in order.
std::vector<std::string> split_names(const SplitToFiles& files);

}  // namespace quintet::data
