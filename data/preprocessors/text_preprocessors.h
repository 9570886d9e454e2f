#pragma once
// seqio's and t5's preprocessors from text to ids. Members are the Python arguments, under their
// names.
//
//   ParseTsv{} : "one\ttwo"                  -> {inputs: "one", targets: "two"}
//   Tokenize{} : {inputs: "one", ..}         -> {inputs_pretokenized: "one", inputs: [..], ..}

#include "data/examples/preprocessor.h"

namespace quintet::data {

/// seqio.preprocessors.rekey: new name -> old name; an old name that is empty (None) gives "".
struct Rekey final : Preprocessor {
  std::vector<std::pair<std::string, std::string>> key_map;
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// seqio.preprocessors.tokenize: encodes the task's output features; the text stays under
/// "<feature>_pretokenized". Features that already are ids stay as they are.
struct Tokenize : Preprocessor {
  bool copy_pretokenized = true;
  bool with_eos = false;
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// t5's parse_tsv: splits the line in feature "text".
struct ParseTsv final : Preprocessor {
  std::vector<std::string> field_names = {"inputs", "targets"};
  std::string field_delim = "\t";
  std::vector<int64_t> field_columns;  // none: 0, 1, ..
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// t5's preprocess_tsv: splits the line in feature "text" and puts the columns into two templates,
/// "{2}" or, with field_names, "{name}".
struct PreprocessTsv final : Preprocessor {
  std::string field_delim = "\t";
  int64_t num_fields = 2;
  std::string inputs_format = "{0}";
  std::string targets_format = "{1}";
  std::vector<std::string> field_names;
  bool use_quote_delim = false;
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// Two texts of the example's fields, written as Python's str.format: "{name}" is a field's text, number or
/// list, "{{" a brace. Throws kData naming the example for a field that it lacks.
struct FormatPair final : Preprocessor {
  std::string inputs_format, targets_format;
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
  /// The fields that a format names. Throws a usage error for braces that do not match.
  static std::vector<std::string> fields_of(std::string_view format);
};

/// Puts `prefix` before the text of feature `feature_key`: how one model is told which task is
/// meant.
struct AddPrefix final : Preprocessor {
  std::string prefix;
  std::string feature_key = "inputs";
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// seqio.preprocessors.print_dataset: every example to stderr, `summarize` ids of a feature; for
/// looking for faults.
struct PrintDataset final : Preprocessor {
  int64_t summarize = 3;
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

}  // namespace quintet::data
