#pragma once
// Preprocessors, postprocessors, metrics and sources that are functions of the user's own processes.
// The requests and answers, a JSON object a line (python/quintet_worker.py is the other end):
//
//   preprocessor   {"example": {..}, "sequence_length": {..}, "seed": 1}  ->  {"examples": [{..}, ..]}
//   postprocessor  {"output": .., "example": {..}, "is_target": true}     ->  {"output": ..}
//   metric         {"targets": [..], "predictions": [..]}                 ->  {"metrics": {"name": 0.5}}
//                  a value is also a text, or one of {"histogram": [..], "bins": 30}, {"image": ["PNG as base64"],
//                  "width": 2, "height": 3, "max_outputs": 3}, {"audio": ["WAV as base64"], "max_outputs": 3} and
//                  {"tensor": [[..]], "plugin_name": "..", "plugin_content": "base64"}, as seqio.metrics has them
//   metric object  {"metric_object": {"model_output_type": "prediction", "target_field_name": "targets", "target_length": 32,
//                  "batch_size": 0, "size": 100, "features": {"targets": {"vocab_size": 259, ..}, ..}}}. The process asks
//                  before it answers as a metric does:
//                  {"examples": [0, 50]}  ->  {"inputs": [{..}, ..]} and, of the type, "predictions" (ids), these and
//                  "aux_values", or "scores"; NaN and infinities are the texts "NaN", "Infinity", "-Infinity"
//                  {"decode": [[5, 6, 1], ..], "feature": "targets"}     ->  {"decoded": ["..", ..]}
//                  {"encode": ["..", ..], "feature": "targets"}          ->  {"encoded": [[5, 6], ..]}
//   source         {"split": "train"}                                     ->  {"size": 100}
//                  {"split": "train", "index": 7}                         ->  {"example": {..}}
//   decoder        {"record": {"base64": ".."}}                           ->  {"example": {..}}
//   write_fn       {"write": "path", "mode": "predict", "inferences": [{"inputs": {..}, "prediction": ..}, ..]}  ->  {}
//   merge_fn       {"merge": {"output_dir": "..", "output_fname": "..", "tmp_dir": "..", "step": 7}}  ->  {}
//
// Features are texts, numbers, lists of them and grids; bytes that are no text {"base64": ".."}.
// With format tf_example a request has "format": "tf_example", and the place of each example, there
// and in the answer, has the number of bytes of a serialized tf.Example; these follow the line.

#include "data/examples/data_source.h"
#include "data/examples/preprocessor.h"
#include "data/metrics/metric.h"
#include "data/workers/workers.h"

namespace quintet::data {

using WorkersPtr = std::shared_ptr<const Workers>;

/// Each example to any number of them. The seed is a draw of the example's own, so that the answer
/// depends on no other example, thread or process.
PreprocessorPtr process_preprocessor(WorkersPtr workers);
PostprocessFn process_postprocessor(WorkersPtr workers);
MetricFn process_metric(WorkersPtr workers, std::string name);
/// A class with seqio.metrics.Metric's from_model_output and compute. `batch_size`: it is called for so many examples at a
/// time, and what it gives is merged; 0: for all at once, as seqio.Evaluator does.
MetricObject process_metric_object(WorkersPtr workers, ModelOutputType type, int64_t batch_size);
/// Examples by index, so that shuffling and positions are those of any other source.
DataSourcePtr process_source(WorkersPtr workers, std::vector<std::string> splits);

/// T5X's write_fn: the file at `path` of a chunk of inferences. `lines`: as inference_line makes them, each with its
/// newline. Throws kData if there is no such file afterwards.
void process_write(const Workers& workers, const std::string& path, const std::string& mode,
                   const std::string& lines);
/// T5X's merge_fn: of the chunks tmp_dir/output_fname-chunkCCCCC what the function likes.
struct MergeRequest {
  std::string output_dir, output_fname, tmp_dir;
  int64_t step = 0;
};
void process_merge(const Workers& workers, const MergeRequest& request);
/// One example of each record of files.
FileDataSource::ParseRecord process_decoder(WorkersPtr workers);

}  // namespace quintet::data
