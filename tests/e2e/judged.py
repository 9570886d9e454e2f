"""A task in gin with a metric of predictions and one of scores: format(file=PATH of a .tsv, results=NUMBER or None)."""

TASK = """
from __gin__ import dynamic_registration
import seqio
from quintet import data
from t5.data import postprocessors
from t5.evaluation import metrics

data.TsvDataSource.split_to_filepattern = {{'validation': '{file}'}}
judged/seqio.Feature.vocabulary = @seqio.ByteVocabulary()
judged/seqio.Task:
  name = 'judged'
  source = @data.TsvDataSource()
  preprocessors = [@seqio.preprocessors.tokenize, @seqio.preprocessors.append_eos]
  output_features = {{'inputs': @judged/seqio.Feature(), 'targets': @judged/seqio.Feature()}}
  postprocess_fn = @postprocessors.string_label_to_class_id
  metric_fns = [@metrics.accuracy, @metrics.score_auc]
postprocessors.string_label_to_class_id.label_classes = ['no', 'yes']
seqio.TaskRegistry.tasks = [@judged/seqio.Task()]
seqio.JSONLogger.write_n_results = {results}
"""
