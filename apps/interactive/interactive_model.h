#pragma once
// A model that is trained, asked and evaluated by turns: T5X's InteractiveModel.
//
//   InteractiveModel model(flags, gin_line, ranks);
//   model.train(model.examples().read("one => uno", true, "train"), 20);
//   model.predict(examples, [](const Answered& answered) { ... });

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/evaluate/task_evaluator.h"
#include "apps/interactive/examples.h"
#include "apps/model/predictor.h"
#include "apps/train/train_loop.h"

namespace quintet {

/// What the model says of an example.
struct Answered {
  std::string input, target, prediction;
  double score = 0;  // log-likelihood of the prediction, or of the target
};

/// The folder of a run of which nothing is kept, or the one that is named.
class OutputFolder {
 public:
  explicit OutputFolder(std::string named);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  bool is_kept() const { return is_kept_; }

 private:
  std::filesystem::path path_;
  bool is_kept_;
};

class InteractiveModel {
 public:
  /// Opens the model, or goes on from the newest checkpoint of --output_dir. Throws what open_trained_model and
  /// TrainLoop throw.
  InteractiveModel(const InteractiveFlags& flags, const gin::CommandLine& line, Ranks& ranks);

  const ExampleReader& examples() const { return *reader_; }
  int64_t step() { return loop_->state().step(); }
  std::string loss_per_token() { return loop_->state().loss_per_token(); }
  StopRequests& stop() { return loop_->state().stop; }
  const OutputFolder& folder() const { return folder_; }
  bool is_saved() { return loop_->state().saved_step == step(); }
  /// Steps that are to be kept and are in no checkpoint.
  bool has_unsaved() { return folder_.is_kept() && step() > opened_step_ && !is_saved(); }

  /// Steps on batches of the examples, again from the first after the last; the metrics of a summary. Fewer steps if
  /// a signal asks to stop.
  std::map<std::string, double> train(const Examples& examples, int64_t steps);
  /// The decode function's answers, or the scores of the targets, example by example until a signal asks to stop.
  using Tell = std::function<void(const Answered& answered)>;
  void predict(const Examples& examples, const Tell& tell);
  void score(const Examples& examples, const Tell& tell);
  /// By the metrics of these names (finetune's, or any that gin knows), or without any by the task's own. Nothing if a
  /// signal asked to stop.
  std::optional<std::vector<data::TaskOutputs>> evaluate(const Examples& examples,
                                                         const std::vector<std::string>& metrics);
  /// A checkpoint of this step in --output_dir, which must be given; its folder.
  std::filesystem::path save();

  /// Whether it is one of finetune's names, or one with a dot that gin knows: an example's first word is neither.
  bool knows_metric(const std::string& name) const;

 private:
  class CommandBatches;
  data::Lengths limits(bool to_train) const;
  TrainConfig train_config() const;
  data::DatasetConfig dataset_of(const Examples& examples) const;
  void check_end(const Examples& examples) const;
  data::MetricFn metric(const std::string& name) const;
  void answer(const Examples& examples, bool predicts, const Tell& tell);
  void answer_batch(const std::vector<data::Example>& examples, const data::Features& features,
                    bool predicts, const Tell& tell) const;

  const InteractiveFlags& flags_;
  OutputFolder folder_;
  TrainedModel trained_;
  std::optional<ExampleReader> reader_;
  data::Lengths train_limits_, limits_;
  data::VocabularyPtr targets_;
  std::optional<TrainLoop> loop_;
  CommandBatches* batches_ = nullptr;  // the loop's
  int64_t opened_step_ = 0, seed_ = 0;
  data::ProviderPtr trained_on_;  // whose batches they are
  std::string trained_split_;
  std::optional<Predictor> predictor_;  // of the parameters as they are
  // Of the last evaluation, whose outputs point into them.
  std::vector<std::pair<data::ProviderPtr, std::unique_ptr<TaskEvaluator>>> evaluated_;
};

}  // namespace quintet
