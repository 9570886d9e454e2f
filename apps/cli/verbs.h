#pragma once
// The verbs of the `quintet` command: one line a verb, one file a verb (apps/cli/<verb>.cpp, at most 80
// lines) that defines
//
//   int run_<verb>(std::span<char* const> args);   // args: what follows the verb; returns the exit code
//
// A verb reads its flags with apps/flags/command_line.h and calls the folder that does the work. Results
// go to stdout, everything else to stderr; what is the user's to mend is thrown as quintet::Error.

#include <vector>

#include "apps/flags/command.h"

// VERB(name, what it does, an example)
#define QUINTET_VERBS(VERB)                                                                 \
  VERB(train, "pretrains or fine-tunes as gin files say; resumes an interrupted run",       \
       "quintet train --gin_file=quintet/quickstart.gin --model_dir=/tmp/numbers")          \
  VERB(finetune, "fine-tunes a model on files of examples: one command, no gin",            \
       "quintet finetune byt5-small --output_dir=/tmp/quiz --train=train.jsonl "            \
       "--input=question --target=answer")                                                  \
  VERB(eval, "computes a task's metrics for checkpoints",                                   \
       "quintet eval --model_dir=/tmp/numbers --samples=10")                                \
  VERB(infer, "writes predictions or scores of a data set as JSON lines; resumes",          \
       "quintet infer --model_dir=/tmp/numbers --input=q.jsonl --output_dir=/tmp/answers")  \
  VERB(convert, "converts between native, T5X and Hugging Face formats; quantizes",         \
       "quintet convert /tmp/numbers /tmp/numbers-hf --to=hf --dtype=bfloat16")             \
  VERB(export, "writes a model as one file, which every verb takes for it; or as ONNX",     \
       "quintet export /tmp/numbers --output=/tmp/numbers.safetensors")                     \
  VERB(inspect, "shows, verifies or compares model directories and checkpoints",            \
       "quintet inspect /tmp/numbers")                                                      \
  VERB(report, "writes a page about training runs: curves, differences, samples, faults",   \
       "quintet report /tmp/numbers --output=/tmp/numbers.html")                            \
  VERB(generate, "generates text, scores or embeddings with a trained model",               \
       "quintet generate --model_dir=/tmp/numbers --beams=4 'words: 1234'")                 \
  VERB(interactive, "trains, asks and evaluates a model by commands, typed or piped",       \
       "quintet interactive /tmp/numbers")                                                  \
  VERB(serve, "serves a model over HTTP: OpenAI's completions interface, a web page",       \
       "quintet serve --model_dir=/tmp/numbers --port=8000")                                \
  VERB(config, "prints the configuration that gin files and flags result in",               \
       "quintet config t5x/examples/t5/t5_1_1/base.gin --gin.DROPOUT_RATE=0.0")             \
  VERB(data, "shows a task's examples raw, preprocessed and packed",                        \
       "quintet data show number_words --num=2")                                            \
  VERB(plan, "simulates a training step on a mesh: layouts, collectives, bytes",            \
       "quintet plan t5x/examples/t5/t5_1_1/small.gin --gin.DROPOUT_RATE=0.0 "              \
       "--mesh=data=4,model=2")                                                             \
  VERB(precompile, "T5X's precompile.py: simulates the training step of its configuration", \
       "quintet precompile --gin_file=my_precompile.gin --model_dir=/tmp/step")             \
  VERB(cache, "preprocesses tasks into seqio's offline caches",                             \
       "quintet cache --gin_file=my_task.gin --tasks=my_task --output_cache_dir=/tmp/c")    \
  VERB(tokenizer, "trains SentencePiece models; text to ids and back",                      \
       "quintet tokenizer train --input a.txt --vocab_size 8000 --model_prefix a")          \
  VERB(bench, "times training, generation and more; prints JSON objects",                   \
       "quintet bench train --model=t5_1_1_small --batch=8 --inputs=256 --targets=64")      \
  VERB(completion, "prints a script that completes verbs and flags in bash or zsh",         \
       "quintet completion bash > quintet.bash")                                            \
  VERB(man, "prints manual pages", "quintet man train > quintet-train.1")

namespace quintet {

#define QUINTET_DECLARE(name, summary, example) int run_##name(std::span<char* const> args);
QUINTET_VERBS(QUINTET_DECLARE)
#undef QUINTET_DECLARE

/// All of them and their parts, in the order of --help.
std::vector<Command> all_commands();
std::vector<Command> bench_commands();
std::vector<Command> tokenizer_commands();

}  // namespace quintet
