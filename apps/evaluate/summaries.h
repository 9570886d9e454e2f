#pragma once
// Where a run's numbers go: TensorBoard event files under T5X's folders and one metrics.jsonl.
//
//   Summaries summaries(model_dir, state.metrics_bytes);
//   summaries.write("train", step, {{"loss", 2.5}});      // train/events..., and metrics.jsonl: "train/loss"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace quintet {

class EventFile;

class Summaries {
 public:
  /// Cuts metrics.jsonl to `metrics_bytes`: what a killed run wrote after its last checkpoint is written
  /// again by this one. Throws kDisk.
  /// `resumed_step`: the first step that a resumed run writes again; TensorBoard drops the old ones.
  Summaries(std::filesystem::path model_dir, int64_t metrics_bytes,
            std::optional<int64_t> resumed_step = {});
  /// Writes nothing: of ranks but the first.
  static std::unique_ptr<Summaries> none();
  ~Summaries();
  Summaries(const Summaries&) = delete;
  Summaries& operator=(const Summaries&) = delete;

  /// `run`: "train", "training_eval/<task>" or "inference_eval/<task>".
  void write(const std::string& run, int64_t step, const std::map<std::string, double>& scalars);
  /// To metrics.jsonl alone.
  void log(const std::string& run, int64_t step, const std::map<std::string, double>& scalars);
  /// The event file of a run; null where nothing is written.
  EventFile* events(const std::string& run);
  /// A Markdown text, for TensorBoard's text tab.
  void write_text(const std::string& run, const std::string& tag, const std::string& markdown);
  /// Everything written so far is in the files.
  void flush();
  /// The end: flushes and closes all files. Throws kDisk if one of them did not take everything.
  void close();
  int64_t metrics_bytes() const;

 private:
  struct State;
  Summaries();
  std::unique_ptr<State> state_;
};

}  // namespace quintet
