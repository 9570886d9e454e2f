/* Quintet for programs in C and in languages that call C.
 *
 *   quintet_model *model;
 *   quintet_result *result;
 *   const char *inputs[] = {"words: 1234"};
 *   if (quintet_load("/tmp/numbers", NULL, &model) != QUINTET_OK) return puts(quintet_error()), 1;
 *   quintet_generate(model, inputs, 1, "{\"max_tokens\": 40}", &result);
 *   if (quintet_wait(result, -1) == QUINTET_OK) puts(quintet_text(result, 0, NULL));
 *   quintet_free(result);
 *   quintet_close(model);
 *
 * The library is small: each model, and each reader of batches, is a process of the `quintet` program, found in
 * QUINTET_PROGRAM of the environment, beside the library, in ../bin or ../../bin of its folder, or along PATH. So the
 * engine's libraries meet none of the caller's, and what ends it is an error and not the end of the caller.
 *
 * Functions that give a quintet_status set what quintet_error() says in this thread. They may be called from several
 * threads, with one model too: its requests are computed together, in one batch. One result is for one thread at a time.
 * Texts are UTF-8. A process that forks must load its models after that. docs/usage/python.md has more. */
#ifndef QUINTET_H
#define QUINTET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows with every change that a caller must know of; quintet_interface() says which one the library has. */
#define QUINTET_INTERFACE 1

/* The exit codes of the `quintet` command (docs/reference/exit-codes.md), and two that are no errors. */
typedef enum quintet_status {
  QUINTET_OK = 0,
  QUINTET_BUG = 1,         /* a fault of Quintet's */
  QUINTET_USAGE = 2,       /* what was asked for makes no sense */
  QUINTET_DATA = 3,        /* a file or text that is missing or damaged */
  QUINTET_ENVIRONMENT = 4, /* the machine: memory, GPU, program; the model's process has ended */
  QUINTET_DISK = 5,
  QUINTET_PEER = 6,
  QUINTET_NON_FINITE = 7,
  QUINTET_WAITING = 100, /* the time is over; ask again */
  QUINTET_END = 101      /* no more pieces or batches */
} quintet_status;

int quintet_interface(void);
const char* quintet_version(void);
/* The sentence of the last status other than QUINTET_OK in this thread. */
const char* quintet_error(void);
/* The program that it starts: a path, or "quintet" where PATH is searched. */
const char* quintet_program(void);

/* ---- A model ------------------------------------------------------------------------------------------------------ */

typedef struct quintet_model quintet_model;
typedef struct quintet_result quintet_result;

/* Loads the directory of a training run, a checkpoint or a Hugging Face directory. flags: NULL, or flags of
 * `quintet serve` that end with NULL: {"--quantize=int8", "--threads=4", "--max_prompt_tokens=4096", NULL}. */
quintet_status quintet_load(const char* model_dir, const char* const* flags, quintet_model** model);
/* What is being computed ends, within two seconds; results stay valid, those that wait with QUINTET_USAGE. */
void quintet_close(quintet_model* model);
/* JSON: version, model, model_dir, step, vocab_size, emb_dim. Valid until the model is closed. */
const char* quintet_describe(const quintet_model* model);

/* These begin a request and return at once; quintet_wait() says how it went. options: NULL, or a JSON object of the
 * fields of the server's requests (docs/usage/serve.md). */

/* Answers: fields of /v1/completions. Without "temperature" the likeliest token is taken each time. */
quintet_status quintet_generate(quintet_model* model, const char* const* inputs, size_t count,
                                const char* options, quintet_result** result);
/* One answer piece by piece: quintet_next(). Not with "n" above 1. */
quintet_status quintet_stream(quintet_model* model, const char* input, const char* options,
                              quintet_result** result);
/* The sum of the log probabilities of targets[i] as the answer to inputs[i]: one value each. Fields of /v1/score. */
quintet_status quintet_score(quintet_model* model, const char* const* inputs,
                             const char* const* targets, size_t count, const char* options,
                             quintet_result** result);
/* Vectors of the encoder: [1, width], the mean over the tokens, or with {"pooling": "none"} [tokens, width]. */
quintet_status quintet_embed(quintet_model* model, const char* const* inputs, size_t count,
                             const char* options, quintet_result** result);
/* Ids of a text, with what the model's inputs end with unless {"add_special_tokens": false}. */
quintet_status quintet_tokenize(quintet_model* model, const char* text, const char* options,
                                quintet_result** result);
quintet_status quintet_detokenize(quintet_model* model, const int32_t* ids, size_t count,
                                  quintet_result** result);

/* Waits for the whole result; seconds < 0: as long as it takes. QUINTET_WAITING when they are over. */
quintet_status quintet_wait(quintet_result* result, double seconds);
/* The next piece of a stream's text, valid until the next call; QUINTET_END after the last. *bytes (unless NULL): its
 * length, since a model may write the character 0. */
quintet_status quintet_next(quintet_result* result, double seconds, const char** piece,
                            size_t* bytes);
/* Ends a request that still runs, and forgets the result. */
void quintet_free(quintet_result* result);

/* After QUINTET_OK of quintet_wait(), valid until quintet_free(); NULL or 0 where the result has no such part: */
size_t quintet_count(const quintet_result* result); /* of answers, scores or vectors */
const char* quintet_text(const quintet_result* result, size_t index, size_t* bytes);
const float* quintet_values(const quintet_result* result, size_t index, size_t* rows,
                            size_t* width);
const int32_t* quintet_ids(const quintet_result* result, size_t* count);
const char* quintet_json(
    const quintet_result* result); /* the server's whole answer; of a stream, NULL */

/* ---- Batches of a task -------------------------------------------------------------------------------------------- */

typedef struct quintet_batches quintet_batches;

typedef struct quintet_feature {
  const char* name;  /* "encoder_input_tokens" */
  const char* dtype; /* "int32" or "float32" */
  size_t rank;       /* of shape, the batch's rows first */
  const int64_t* shape;
} quintet_feature;

/* Batches as a training run of Quintet sees them. flags: of `quintet data batches`, that end with NULL:
 * {"number_words", "--batch_size=8", "--task_feature_lengths=inputs=64,targets=64", NULL}. */
quintet_status quintet_open_batches(const char* const* flags, quintet_batches** batches);
/* The features of every batch; *features is valid until the batches are closed. */
size_t quintet_features(const quintet_batches* batches, const quintet_feature** features);
/* Fills arrays[i] with feature i. *rows: those that hold examples, all but in the last batch. */
quintet_status quintet_next_batch(quintet_batches* batches, double seconds, void* const* arrays,
                                  int64_t* rows);
void quintet_close_batches(quintet_batches* batches);

#ifdef __cplusplus
}
#endif
#endif
