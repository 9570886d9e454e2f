#pragma once
// The verbs of the `quintet` command: one line a verb, one file a verb (apps/cli/<verb>.cpp, at most 80
// lines) that defines
//
//   int run_<verb>(std::span<char* const> args);   // args: what follows the verb; returns the exit code
//
// A verb reads its flags with apps/flags/command_line.h and calls the folder that does the work. Results
// go to stdout, everything else to stderr; what is the user's to mend is thrown as quintet::Error.

#include <span>

// VERB(name, what it does, an example)
#define QUINTET_VERBS(VERB)                                                                   \
  VERB(train, "pretrains or fine-tunes as gin files say; goes on where a run was stopped",    \
       "quintet train --gin_file=quintet/quickstart.gin --model_dir=/tmp/numbers")            \
  VERB(eval, "metrics of a task over checkpoints",                                            \
       "quintet eval --model_dir=/tmp/numbers --samples=10")                                  \
  VERB(infer, "predictions or scores of a data set, as JSON lines; goes on where it stopped", \
       "quintet infer --model_dir=/tmp/numbers --input=q.jsonl --output_dir=/tmp/answers")    \
  VERB(convert, "a model with its weights in fewer bits, and what it loses by that",          \
       "quintet convert --model_dir=/tmp/numbers --quantize=int8 --output=/tmp/small")        \
  VERB(inspect, "looks into a model directory, checkpoint or safetensors file, checks it",    \
       "quintet inspect /tmp/numbers")                                                        \
  VERB(generate, "text in, text out, by a trained model",                                     \
       "quintet generate --model_dir=/tmp/numbers --beams=4 'words: 1234'")                   \
  VERB(serve, "a trained model as an HTTP server with a web page",                            \
       "quintet serve --model /tmp/numbers --port 8000")                                      \
  VERB(config, "prints the configuration that gin files and flags come to",                   \
       "quintet config t5x/examples/t5/t5_1_1/base.gin --gin.DROPOUT_RATE=0.0")               \
  VERB(data, "shows a task's examples raw, preprocessed and packed",                          \
       "quintet data show number_words --num=2")                                              \
  VERB(plan, "a training step on a mesh, simulated: layouts, collectives, bytes",             \
       "quintet plan t5x/examples/t5/t5_1_1/small.gin --gin.DROPOUT_RATE=0.0 "                \
       "--mesh=data=4,model=2")                                                               \
  VERB(cache, "preprocesses tasks into seqio's offline caches",                               \
       "quintet cache --gin_file=my_task.gin --tasks=my_task --output_cache_dir=/tmp/c")      \
  VERB(tokenizer, "trains SentencePiece models; text to ids and back",                        \
       "quintet tokenizer train --input a.txt --vocab_size 8000 --model_prefix a")            \
  VERB(bench, "times training, generation and more; one JSON object on stdout",               \
       "quintet bench train --model=t5_1_1_small --batch=8 --inputs=256 --targets=64")

namespace quintet {

#define QUINTET_DECLARE(name, summary, example) int run_##name(std::span<char* const> args);
QUINTET_VERBS(QUINTET_DECLARE)
#undef QUINTET_DECLARE

}  // namespace quintet
