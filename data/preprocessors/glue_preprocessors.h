#pragma once
// t5's preprocessors for GLUE and SuperGLUE, whose labels become words. Nested features have names
// with slashes ("idx/paragraph").
//
//   Glue{"mrpc", {"not_equivalent", "equivalent"}} :
//     {sentence1: "a", sentence2: "b", label: 1, idx: 7}
//     -> {idx: 7, inputs: "mrpc sentence1: a sentence2: b", targets: "equivalent"}

#include "data/examples/preprocessor.h"

namespace quintet::data {

/// Label -1 (a test set) becomes "<unk>". "multirc" also loses its HTML marks and keeps the three
/// numbers of its idx.
struct Glue final : Preprocessor {
  std::string benchmark_name;
  std::vector<std::string> label_names;
  std::vector<std::string> feature_names;     // none: all but label and idx, by name
  std::optional<std::string> id_key = "idx";  // kept as "idx"
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// STS-B: the similarity in steps of 0.2, as text.
struct Stsb final : Preprocessor {
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// ReCoRD: an example for each answer.
struct Record final : Preprocessor {
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// SuperGLUE's WSC: spans marked * and #, label as word.
struct Wsc final : Preprocessor {
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// WSC as the question which noun a marked pronoun stands for.
struct WscSimple final : Preprocessor {
  std::string label = "wsc:";
  bool correct_referent_only = false;
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// GLUE's WNLI in the form of WscSimple: the pronoun is found by comparing the two sentences.
struct WnliSimple final : Preprocessor {
  std::string label = "wsc:";
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// Definite Pronoun Resolution in the form of WscSimple.
struct DefinitePronounResolutionSimple final : Preprocessor {
  std::string label = "wsc:";
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

}  // namespace quintet::data
