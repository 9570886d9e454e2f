#pragma once
// t5's preprocessors for SQuAD and TriviaQA. Spaces go around punctuation, so that answers are
// pieces of the context between spaces.
//
//   Squad{} : {question: "Who?", context: "A b.", answers/text: ["b"], id: "q0"}
//          -> {inputs: "question: Who ? context: A b . ", targets: "b", answers: ["b"], ..}

#include "data/examples/preprocessor.h"

namespace quintet::data {

struct Squad final : Preprocessor {
  bool include_context = true;
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// Targets "start: 4 end: 5", in words of the context; questions whose answer is not found are
/// dropped.
struct SquadSpanSpaceTokenized final : Preprocessor {
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// An example for each context and each answer that is in it.
struct TriviaQa final : Preprocessor {
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// On ids: inputs that are too long become a random piece that has the targets in it; examples
/// without one are dropped.
struct TriviaQaTruncateInputs final : Preprocessor {
  bool uses_lengths() const override { return true; }
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

}  // namespace quintet::data
