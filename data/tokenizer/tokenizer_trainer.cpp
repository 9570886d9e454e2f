#include "data/tokenizer/tokenizer_trainer.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>

#include "data/sources/input_file.h"
#include "data/sources/record_files.h"
#include "runtime/base/check.h"
#include "runtime/base/files/atomic_file.h"

namespace quintet::data {
namespace {

/// Hands lines to the trainer: every `stride`-th of those that can be used.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  Lines(const RecordFiles& files, int64_t stride, bool skip_bad, TokenizerReport& report)
      : files_(files), stride_(stride), skip_bad_(skip_bad), report_(report) {
    Next();
  }
  bool done() const override { return done_; }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }
  void Next() override {
    for (; at_ < files_.size(); at_ += stride_) {
      try {
        line_ = files_.read(at_, buffer_);
      } catch (const Error& error) {
        if (error.code() != ExitCode::kData || !skip_bad_) throw;
        ++report_.skipped;
        continue;
      }
      if (line_.empty()) continue;
      if (static_cast<int64_t>(line_.size()) > kMaxSentenceBytes) {
        ++report_.skipped;
        continue;
      }
      ++report_.used;
      at_ += stride_;
      return;
    }
    done_ = true;
  }

 private:
  const RecordFiles& files_;
  int64_t stride_, at_ = 0;
  bool skip_bad_, done_ = false;
  TokenizerReport& report_;
  std::string buffer_, line_;
};

std::unordered_map<std::string, std::string> trainer_arguments(const TokenizerOptions& options) {
  return {{"model_type", options.model_type},
          {"vocab_size", std::to_string(options.vocab_size)},
          {"character_coverage", fmt::format("{}", options.character_coverage)},
          {"byte_fallback", options.byte_fallback ? "true" : "false"},
          {"split_digits", options.split_digits ? "true" : "false"},
          {"normalization_rule_name", options.normalization},
          {"max_sentence_length", std::to_string(kMaxSentenceBytes)},
          {"shuffle_input_sentence", "false"},
          // Sums over threads are in thread order: the number of threads is part of the result.
          {"num_threads", "2"},
          {"pad_id", "0"},
          {"eos_id", "1"},
          {"unk_id", "2"},
          {"bos_id", "-1"},
          {"minloglevel", "2"}};
}

}  // namespace

TokenizerReport train_tokenizer(const TokenizerOptions& options, const std::string& model_prefix) {
  QT_CHECK(!options.inputs.empty(), "tokenizer training: no input file given");
  QT_CHECK(options.vocab_size > 3, "tokenizer training: vocab_size {} must be above 3",
           options.vocab_size);
  QT_CHECK(options.input_sentence_size > 0,
           "tokenizer training: input_sentence_size {} must be positive",
           options.input_sentence_size);
  TokenizerReport report{.model_file = model_prefix + ".model",
                         .vocab_file = model_prefix + ".vocab"};
  std::vector<RecordFilePtr> opened;
  for (const std::string& path : expand_patterns(options.inputs))
    opened.push_back(open_line_file(path, {}, false));
  const RecordFiles files(std::move(opened));
  report.lines = files.size();
  const int64_t stride =
      (report.lines + options.input_sentence_size - 1) / options.input_sentence_size;
  Lines lines(files, std::max<int64_t>(1, stride), options.on_bad_utf8_skip, report);
  QT_CHECK_AS(ExitCode::kData, !lines.done(), "{}: no line that a tokenizer could be trained on",
              files.where(-1));

  std::string model;
  const auto status =
      sentencepiece::SentencePieceTrainer::Train(trainer_arguments(options), &lines, &model);
  QT_CHECK(status.ok(), "tokenizer training on {} lines of {}: {}", report.used, files.where(-1),
           status.ToString());

  sentencepiece::SentencePieceProcessor processor;
  QT_ASSERT(processor.LoadFromSerializedProto(model).ok());
  report.pieces = processor.GetPieceSize();
  std::string vocabulary;
  for (int id = 0; id < processor.GetPieceSize(); ++id)
    vocabulary += fmt::format("{}\t{}\n", processor.IdToPiece(id), processor.GetScore(id));
  atomic_write_file(report.model_file, model);
  atomic_write_file(report.vocab_file, vocabulary);
  return report;
}

}  // namespace quintet::data
