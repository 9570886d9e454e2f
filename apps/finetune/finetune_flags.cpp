#include "apps/finetune/finetune_flags.h"

#include <algorithm>

#include "apps/finetune/finetune_metrics.h"
#include "apps/flags/command_line.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

const auto kPositive = CLI::Range(int64_t{1}, int64_t{1} << 40);
const auto kFraction = CLI::Range(0.0, 1.0);

void add_data_flags(CLI::App& app, FinetuneFlags& flags) {
  constexpr const char* kGroup = "Data";
  app.add_option("--train", flags.train,
                 ".jsonl, or .csv or .tsv with a first line that names the columns; *.gz and *.zst "
                 "too; a pattern in quotes may name several files")
      ->group(kGroup);
  app.add_option("--validation", flags.validation,
                 "likewise; without it, every 20th example of --train is for validation")
      ->group(kGroup);
  app.add_option("--input", flags.input, "the field that the model reads")->group(kGroup);
  app.add_option("--target", flags.target, "the field that it is to answer")->group(kGroup);
  app.add_option("--source_prefix", flags.source_prefix,
                 "text before every input, as 'summarize: '")
      ->group(kGroup);
  app.add_option("--template", flags.format,
                 "instead of --input: the input of several fields, as 'question: {question} "
                 "context: {context}'; {{ and }} are braces")
      ->group(kGroup);
  app.add_option("--max_input_length", flags.input_length,
                 "tokens of an input, of which the rest is cut off; default: as 99 % of the inputs "
                 "have, at most 1024")
      ->group(kGroup)
      ->check(kPositive);
  app.add_option("--max_target_length", flags.target_length,
                 "tokens of a target, likewise; default: as the longest has, at most 512")
      ->group(kGroup)
      ->check(kPositive);
}

void add_evaluation_flags(CLI::App& app, FinetuneFlags& flags) {
  constexpr const char* kGroup = "Evaluation";
  app.add_option(
         "--metrics", flags.metrics,
         "computed on --validation, with commas between; default: accuracy of class labels, "
         "else f1,exact_match")
      ->delimiter(',')
      ->group(kGroup)
      ->check(CLI::IsMember(finetune_metric_names()));
  app.add_option(
         "--labels", flags.labels,
         "the classes that targets are, with commas between: a confusion matrix is printed, "
         "another target is an error; none: there are none; default: the targets, where "
         "they are at most 20 and ten times as many examples")
      ->delimiter(',')
      ->group(kGroup);
  app.add_option("--best_metric", flags.best_metric,
                 "that the best checkpoint is kept by, and --patience looks at: one of --metrics, "
                 "or loss; default: the first metric")
      ->group(kGroup);
  app.add_option("--patience", flags.patience,
                 "stop after so many evaluations without a new best one; 0: never")
      ->group(kGroup)
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
}

void add_optimizer_flags(CLI::App& app, FinetuneFlags& flags) {
  constexpr const char* kGroup = "Optimizer";
  app.add_option("--optimizer", flags.optimizer,
                 "adafactor or adamw; default: adafactor, of adapters adamw")
      ->group(kGroup)
      ->check(CLI::IsMember({"adafactor", "adamw"}));
  app.add_option(
         "--learning_rate", flags.learning_rate,
         "the highest: it rises to it during the first tenth of the steps, then falls to 0 "
         "as a cosine; default: 0.001 of adafactor, which is relative to the size of each "
         "parameter, 0.0003 of adamw, both times (512 / emb_dim)^2, at most 16, for a narrower "
         "model; 0.001 of adapters")
      ->group(kGroup)
      ->check(CLI::PositiveNumber);
  app.add_option("--weight_decay", flags.weight_decay,
                 "with adamw: of all but norms, biases and relative position biases")
      ->group(kGroup)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--max_grad_norm", flags.max_grad_norm,
                 "with adamw: the gradient of all parameters that train is scaled down to this "
                 "norm; 0: not")
      ->group(kGroup)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--layer_decay", flags.layer_decay,
                 "with adamw: the learning rate of a layer is this times that of the layer above "
                 "it, in each stack; embeddings are below the lowest")
      ->group(kGroup)
      ->check(kFraction);
  app.add_option("--freeze", flags.freeze,
                 "parameters that stay as they are: an expression that is found in /NAME, as "
                 "'^/encoder/' or token_embedder; may be repeated")
      ->allow_extra_args(false)
      ->group(kGroup);
}

void add_training_flags(CLI::App& app, FinetuneFlags& flags) {
  constexpr const char* kGroup = "Training";
  app.add_option(
         "--epochs", flags.epochs,
         "passes over the training examples; default: as many as 2000 batches are, for a model "
         "narrower than 512 80, or as many as 6000 to 8000 batches are; at least 10, at most 100")
      ->group(kGroup)
      ->check(CLI::PositiveNumber);
  app.add_option("--steps", flags.steps, "instead of --epochs: batches")
      ->group(kGroup)
      ->check(kPositive);
  app.add_option("--batch_tokens", flags.batch_tokens,
                 "tokens of a batch, inputs and targets, padding included; default: 8192, less "
                 "where an epoch would have fewer than 60 batches")
      ->group(kGroup)
      ->check(kPositive);
  app.add_option("--batch_size", flags.batch_size,
                 "instead of --batch_tokens: rows of a batch, of all ranks together")
      ->group(kGroup)
      ->check(kPositive);
  app.add_option(
         "--microbatches", flags.microbatches,
         "parts of a batch, one after the other (gradient accumulation); default: as few as "
         "fit the free memory, by simulation of a step; under mpirun 1")
      ->group(kGroup)
      ->check(kPositive);
  app.add_option("--precision", flags.precision,
                 "of activations and products on a GPU; default: the model's own")
      ->group(kGroup)
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  app.add_option("--dropout", flags.dropout, "dropout rate")->group(kGroup)->check(kFraction);
  app.add_option("--label_smoothing", flags.label_smoothing, "of the loss")
      ->group(kGroup)
      ->check(kFraction);
  app.add_option("--seed", flags.seed, "of the order of the examples and of dropout")
      ->group(kGroup);
}

}  // namespace

void FinetuneFlags::add_to(CLI::App& app) {
  app.add_option("model,--model_dir", model_dir,
                 "the model that is fine-tuned: a Hugging Face directory, a run's directory, or a "
                 "checkpoint of any program");
  app.add_option("--output_dir", output_dir,
                 "the run's folder, which eval, generate and serve take as --model_dir; the same "
                 "command again resumes it")
      ->transform(mapped_path);
  app.add_option("--output_format", output_format,
                 "hf: each checkpoint as a Hugging Face directory, too, in OUTPUT_DIR/hf; peft: "
                 "adapters as PEFT's, in OUTPUT_DIR/peft")
      ->check(CLI::IsMember({"native", "hf", "peft"}));
  add_data_flags(app, *this);
  add_training_flags(app, *this);
  add_optimizer_flags(app, *this);
  lora.add_to(app);
  add_evaluation_flags(app, *this);
  for (const CLI::Option* option : app.get_options())
    if (option != app.get_help_ptr()) deciding_.push_back(option);
  results.add_to(app);
  training.compute.add_to(app);
  training.ranks.add_to(app);
  training.data.add_to(app);
  training.launch.add_dry_run(app);
  training.launch.add_to(app);
}

void FinetuneFlags::check() const {
  const auto require = [](bool given, const char* flag, const char* what) {
    QT_CHECK(given, "quintet finetune: {} is required: {}", flag, what);
  };
  require(!model_dir.empty(), "--model_dir=DIR", "the model that is fine-tuned");
  require(!output_dir.empty(), "--output_dir=DIR", "the folder of the run");
  require(!train.empty(), "--train=FILE", "the examples to train on");
  require(!target.empty(), "--target=FIELD", "the field that the model is to answer");
  QT_CHECK(input.empty() != format.empty(),
           "quintet finetune: name the input by --input=FIELD or by --template='... {{FIELD}} "
           "...'{}",
           input.empty() ? "" : ", not both");
  QT_CHECK(!epochs || !steps, "quintet finetune: --epochs and --steps: name one of them");
  QT_CHECK(is_adamw() || (weight_decay == 0 && layer_decay == 1),
           "quintet finetune: --weight_decay and --layer_decay go with --optimizer=adamw");
  QT_CHECK(layer_decay > 0, "--layer_decay=0: expected above 0, at most 1; --freeze stops layers");
  QT_CHECK(lora.rank || output_format != "peft",
           "quintet finetune: --output_format=peft goes with --lora_rank");
  QT_CHECK(!lora.rank || freeze.empty(),
           "quintet finetune: --freeze: with --lora_rank all parameters but adapters stay as they "
           "are; --lora_target chooses these");
  QT_CHECK(!batch_size || !batch_tokens,
           "quintet finetune: --batch_size and --batch_tokens: name one of them");
}

double FinetuneFlags::peak_learning_rate(int64_t emb_dim) const {
  if (learning_rate) return *learning_rate;
  if (lora.rank) return 0.001;
  constexpr double kMost = 16;
  const double narrower =
      std::max(1.0, static_cast<double>(kNarrow) / static_cast<double>(emb_dim));
  return (is_adamw() ? 0.0003 : 0.001) * std::min(narrower * narrower, kMost);
}

std::string FinetuneFlags::given() const {
  std::string text;
  for (const CLI::Option* option : deciding_)
    for (const std::string& value : option->results())
      text += fmt::format("--{}={}\n", option->get_lnames().front(), value);
  return text;
}

}  // namespace quintet
