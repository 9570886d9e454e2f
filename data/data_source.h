#pragma once
// Where raw examples come from. A source has splits; a split is opened into a Reader with random
// access, so that shuffling is a permutation of indices and any place can be returned to at once.
//
//   TextLineDataSource source({{"train", {"corpus/*.txt"}}});
//   StreamPtr stream = read_stream(source.open("train"), {.shuffle = true, .seed = 1});

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace quintet::data {

/// What to do about an example that cannot be used (bad UTF-8, missing column, malformed JSON).
enum class OnBadExample { fail, skip };

class Reader : public Origin {
 public:
  /// Number of examples; none: the reader generates without end.
  virtual std::optional<int64_t> size() const = 0;
  /// Fills out with example i. Throws kData (with where(i)) if it cannot be used. Called from
  /// several threads at once.
  virtual void read(int64_t i, Example& out) const = 0;
  /// The files that the examples come from, in order; empty if they come from none.
  virtual std::vector<std::string> files() const { return {}; }
  /// Examples that are cheap to read only one after the other (of compressed files, say): shuffling
  /// permutes windows of this many, and examples within a window. 0: any order costs the same, and
  /// shuffling is global.
  virtual int64_t shuffle_window() const { return 0; }
  OnBadExample on_bad_example = OnBadExample::fail;
};

class DataSource {
 public:
  virtual ~DataSource() = default;
  virtual std::vector<std::string> splits() const = 0;
  /// Throws kData: unknown split (lists the known ones), missing or empty files, bad encoding.
  virtual std::shared_ptr<const Reader> open(const std::string& split) const = 0;
};
using DataSourcePtr = std::shared_ptr<const DataSource>;

struct ReadOptions {
  bool shuffle = false;  // a new permutation each epoch
  int64_t seed = 0;
  std::optional<int64_t> epochs = {};  // none: for ever
};
/// Examples of a reader with their keys set (reading/read_order.h). Without epochs a reader must
/// not be empty.
StreamPtr read_stream(std::shared_ptr<const Reader> reader, const ReadOptions& options);

/// Files of a split: glob patterns; *.gz is decompressed.
using SplitToFiles = std::map<std::string, std::vector<std::string>>;

struct FileOptions {
  OnBadExample on_bad_example = OnBadExample::fail;
  int64_t skip_header_lines = 0;
  int64_t max_line_bytes = int64_t{1} << 26;
};

/// Lines of text, one example {text: line} each. CRLF ends and a UTF-8 byte order mark are taken
/// off, a last line needs no newline, bad UTF-8 and over-long lines are errors with file and line
/// number.
class TextLineDataSource final : public DataSource {
 public:
  explicit TextLineDataSource(SplitToFiles files, FileOptions options = {});
  std::vector<std::string> splits() const override;
  std::shared_ptr<const Reader> open(const std::string& split) const override;

 private:
  SplitToFiles files_;
  FileOptions options_;
};

/// Tab-separated lines with named columns: {inputs: .., targets: ..} by default.
class TsvDataSource final : public DataSource {
 public:
  explicit TsvDataSource(SplitToFiles files, std::vector<std::string> field_names = {},
                         FileOptions options = {});
  std::vector<std::string> splits() const override;
  std::shared_ptr<const Reader> open(const std::string& split) const override;

 private:
  SplitToFiles files_;
  std::vector<std::string> field_names_;
  FileOptions options_;
};

/// One JSON object a line; strings, numbers and arrays of them become features. `fields` (all if
/// empty) must be there.
class JsonlDataSource final : public DataSource {
 public:
  explicit JsonlDataSource(SplitToFiles files, std::vector<std::string> fields = {},
                           FileOptions options = {});
  std::vector<std::string> splits() const override;
  std::shared_ptr<const Reader> open(const std::string& split) const override;

 private:
  SplitToFiles files_;
  std::vector<std::string> fields_;
  FileOptions options_;
};

/// Examples made by a function of (index, key). A split without a size goes on for ever.
class FunctionDataSource final : public DataSource {
 public:
  struct Split {
    std::optional<int64_t> size;
    std::function<void(int64_t index, Example& out)> make;  // out.key is set
  };
  FunctionDataSource(std::string name, std::map<std::string, Split> splits);
  std::vector<std::string> splits() const override;
  std::shared_ptr<const Reader> open(const std::string& split) const override;

 private:
  std::string name_;
  std::map<std::string, Split> splits_;
};

/// Divides the examples of one split: every `every`-th becomes "validation", the others "train".
/// For data that comes as one file.
class HoldOutDataSource final : public DataSource {
 public:
  HoldOutDataSource(DataSourcePtr source, int64_t every, std::string split = "train");
  std::vector<std::string> splits() const override;
  std::shared_ptr<const Reader> open(const std::string& split) const override;

 private:
  DataSourcePtr source_;
  int64_t every_;
  std::string split_;
};

}  // namespace quintet::data
