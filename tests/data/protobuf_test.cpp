// Two copies of protobuf in one process, SentencePiece's and ours, at work in turns: neither calls into the other.

#include "data/examples/data_source.h"
#include "data/examples/tf_example.h"
#include "data/tokenizer/tokenizer_trainer.h"
#include "runtime/base/formats/tfrecord.h"
#include "runtime/metrics/event_file.h"
#include "tests/data/files.h"

namespace quintet::data {
namespace {

using Protobuf = testing::FileTest;

TEST_F(Protobuf, OursWorksBesideSentencePieces) {
  const std::string sentence = "The quick brown fox jumps over the lazy dog.";
  std::string text;
  for (int i = 0; i < 100; ++i) text += sentence + " " + std::to_string(i) + "\n";
  const std::string model =
      train_tokenizer({.inputs = {write("corpus.txt", text)}, .vocab_size = 45},
                      (folder_ / "words").string())
          .model_file;
  std::optional<EventFile> events(folder_ / "train");
  for (int round = 0; round < 3; ++round) {
    const SentencePieceVocabulary vocabulary(model, 10);
    Example example;
    example.set("ids", vocabulary.encode(sentence));
    Example back;
    ExampleParser({})(serialize_tf_example(example), back);
    EXPECT_EQ(vocabulary.decode(back.tokens("ids")), sentence);
    events->text("decoded", round, vocabulary.decode(back.tokens("ids")));
  }
  const auto path = events->path();
  events.reset();
  const std::vector<Event> written = read_event_file(path);
  ASSERT_EQ(written.size(), 5u);  // version, start and three texts
  for (size_t i = 2; i < 5; ++i) EXPECT_EQ(written[i].text, sentence);
}

}  // namespace
}  // namespace quintet::data
