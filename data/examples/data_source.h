#pragma once
// Where raw examples come from. A source has splits; a split is opened into a Reader with random
// access, so that shuffling is a permutation of indices and any place can be returned to at once.
//
//   TextLineDataSource source({{"train", {"corpus/*.txt"}}});
//   StreamPtr stream = read_stream(source.open("train"), {.shuffle = true, .seed = 1});

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "data/examples/dataset.h"
#include "data/examples/tf_example.h"
#include "runtime/base/check.h"

namespace quintet::data {

/// What to do about an example that cannot be used (bad UTF-8, missing column, malformed JSON, wrong
/// checksum).
struct OnBadExample {
  int64_t most = 0;  // examples of a split that may be left out; one more is an error
  static const OnBadExample fail, skip;
  bool operator==(const OnBadExample&) const = default;
};
inline constexpr OnBadExample OnBadExample::fail{0}, OnBadExample::skip{INT64_MAX};
/// "fail", "skip" or "skip:N"; none: something else.
std::optional<OnBadExample> parse_on_bad_example(std::string_view text);

class Reader : public Provenance {
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
  /// Counts example i as left out and logs the first ones; throws `error` if it may not be.
  void leave_out(int64_t i, const Error& error) const;

 private:
  mutable std::mutex mutex_;
  mutable std::set<int64_t> left_out_;
};

/// seqio.ShardInfo: part `index` of `num_shards`.
struct ShardInfo {
  int64_t index = 0, num_shards = 1;
};

class DataSource {
 public:
  virtual ~DataSource() = default;
  virtual std::vector<std::string> splits() const = 0;
  /// Throws kData: unknown split (lists the known ones), missing or empty files, bad encoding.
  virtual std::shared_ptr<const Reader> open(const std::string& split) const = 0;
  /// A part of a split: every num_shards-th file if there are that many, else every num_shards-th
  /// example of the whole.
  virtual std::shared_ptr<const Reader> open_shard(const std::string& split,
                                                   const ShardInfo& shard) const;
  /// Whether a task may shuffle it, though its own shuffle_buffer_size is None.
  virtual bool performs_internal_shuffling() const { return false; }
  /// Parts in which a split can be read without reading the others: its files.
  virtual int64_t num_shards(const std::string&) const { return 1; }
};
/// Examples index, index + num_shards, .. of a reader.
std::shared_ptr<const Reader> every_nth(std::shared_ptr<const Reader> reader,
                                        const ShardInfo& shard);
using DataSourcePtr = std::shared_ptr<const DataSource>;

struct ReadOptions {
  bool shuffle = false;  // a new permutation each epoch
  int64_t seed = 0;
  std::optional<int64_t> epochs = {};  // none: for ever
};
/// Examples of a reader with their keys set (reading/read_order.h). Without epochs a reader must
/// not be empty.
StreamPtr read_stream(std::shared_ptr<const Reader> reader, const ReadOptions& options);

/// Files of a split: glob patterns; *.gz and *.zst are decompressed.
using SplitToFiles = std::map<std::string, std::vector<std::string>>;

struct FileOptions {
  OnBadExample on_bad_example = OnBadExample::fail;
  int64_t skip_header_lines = 0;
  int64_t max_line_bytes = int64_t{1} << 26;
  int64_t cycle_length = 16;  // files that are read in turn
  int64_t block_length = 16;  // records of each
  bool performs_internal_shuffling = false;
};

/// Files of records that are read one by one, in seqio's order: some files in turn, some records of each.
class FileDataSource : public DataSource {
 public:
  /// Opens one file (sources/record_files.h).
  using OpenFile = std::function<std::shared_ptr<const class RecordFile>(const std::string& path)>;
  /// Puts a record's features into an example; an error it throws gets the record's place before it.
  using ParseRecord = std::function<void(std::string_view record, Example& out)>;
  FileDataSource(SplitToFiles files, const FileOptions& options, OpenFile open_file,
                 ParseRecord parse);
  std::vector<std::string> splits() const override;
  std::shared_ptr<const Reader> open(const std::string& split) const override;
  std::shared_ptr<const Reader> open_shard(const std::string& split,
                                           const ShardInfo& shard) const override;
  int64_t num_shards(const std::string& split) const override;
  bool performs_internal_shuffling() const override { return options_.performs_internal_shuffling; }

 private:
  std::vector<std::string> paths(const std::string& split) const;
  SplitToFiles files_;
  FileOptions options_;
  OpenFile open_file_;
  ParseRecord parse_;
};

/// Lines of text, one example {text: line} each. CRLF ends and a UTF-8 byte order mark are taken
/// off, a last line needs no newline, bad UTF-8 and over-long lines are errors with file and line
/// number.
class TextLineDataSource final : public FileDataSource {
 public:
  explicit TextLineDataSource(SplitToFiles files, FileOptions options = {});
};

/// Tab-separated lines with named columns: {inputs: .., targets: ..} by default.
class TsvDataSource final : public FileDataSource {
 public:
  explicit TsvDataSource(SplitToFiles files, std::vector<std::string> field_names = {},
                         FileOptions options = {});
};

/// Separated values, quoted as RFC 4180 has it, under the names that the first line of each file gives. The
/// delimiter of .tsv files is '\t', without quotes.
class CsvDataSource final : public FileDataSource {
 public:
  explicit CsvDataSource(SplitToFiles files, char delimiter = ',', bool quoted = true,
                         FileOptions options = {});
};

/// One JSON object a line; strings, numbers and arrays of them become features. `fields` (all if
/// empty) must be there.
class JsonlDataSource final : public FileDataSource {
 public:
  explicit JsonlDataSource(SplitToFiles files, std::vector<std::string> fields = {},
                           FileOptions options = {});
};

/// TFRecord or ArrayRecord files of anything that `parse` makes an example of.
class RecordDataSource : public FileDataSource {
 public:
  RecordDataSource(SplitToFiles files, ParseRecord parse, FileOptions options = {});
};

/// TFRecord or ArrayRecord files of tf.Example, checksums verified. `features` (tf_example.h) says what to take and
/// how; empty: everything, lists of one text as text, other lists as lists.
class TFExampleDataSource final : public RecordDataSource {
 public:
  explicit TFExampleDataSource(SplitToFiles files, std::vector<FeatureSpec> features = {},
                               FileOptions options = {});
};

/// A data set that TensorFlow Datasets has prepared: TFRecord or ArrayRecord files with features.json and
/// dataset_info.json. Nested features are called "answers/text". Nothing is opened before it is needed.
class TfdsDataSource final : public DataSource {
 public:
  /// Our name -> TFDS's split or slice: {"validation", "train[90%:]"}.
  using Splits = std::vector<std::pair<std::string, std::string>>;
  /// `tfds_name`: "glue/cola:2.0.0"; without a version, the newest there is; empty: tfds_data_dir is the
  /// data set's own folder. `tfds_data_dir` empty: $TFDS_DATA_DIR, else ~/tensorflow_datasets. `splits`
  /// empty: those of the data set. `decoders` (sources/tfds_features.h) null: all that is read, as described.
  explicit TfdsDataSource(std::string tfds_name, std::string tfds_data_dir = "", Splits splits = {},
                          OnBadExample on_bad_example = OnBadExample::fail,
                          std::shared_ptr<const struct TfdsDecoders> decoders = nullptr);
  std::vector<std::string> splits() const override;
  std::shared_ptr<const Reader> open(const std::string& split) const override;
  std::shared_ptr<const Reader> open_shard(const std::string& split,
                                           const ShardInfo& shard) const override;
  int64_t num_shards(const std::string& split) const override;

 private:
  std::string slice_of(const std::string& split) const;
  std::string name_, data_dir_;
  Splits splits_;
  OnBadExample on_bad_example_;
  std::shared_ptr<const TfdsDecoders> decoders_;
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

/// seqio.helpers.TruncatedDatasetProvider: the first examples of a source, so many of each split that
/// `sizes` names.
class TruncatedDataSource final : public DataSource {
 public:
  using Sizes = std::map<std::string, int64_t>;
  /// Throws a usage error for a size below 1.
  TruncatedDataSource(DataSourcePtr source, Sizes sizes);
  std::vector<std::string> splits() const override { return source_->splits(); }
  std::shared_ptr<const Reader> open(const std::string& split) const override;
  /// seqio takes so many of each shard; here all shards together have them.
  std::shared_ptr<const Reader> open_shard(const std::string& split,
                                           const ShardInfo& shard) const override;
  int64_t num_shards(const std::string& split) const override;

 private:
  DataSourcePtr source_;
  Sizes sizes_;
};

}  // namespace quintet::data
