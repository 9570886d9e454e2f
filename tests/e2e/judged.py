"""What is evaluated, in gin.

TASK: a task with a metric of predictions and one of scores: format(file=PATH of a .tsv, results=NUMBER or None).
TRAINING_EVALUATOR: eval's losses of a tiny run: format(run=PATH, out=PATH). SWITCH_MODEL, behind it: of one with experts.
"""

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

TRAINING_EVALUATOR = """
from __gin__ import dynamic_registration
import __main__ as script
import seqio
from t5x import partitioning
from t5x import trainer
from t5x import utils
include 'quintet/byte_tiny.gin'
DROPOUT_RATE = 0.0
TRAIN_STEPS = 200
script.evaluate:
  model = %MODEL
  dataset_cfg = @utils.DatasetConfig()
  restore_checkpoint_cfg = @utils.RestoreCheckpointConfig()
  partitioner = @partitioning.PjitPartitioner()
  output_dir = '{out}'
  inference_evaluator_cls = @seqio.Evaluator
  training_evaluator_cls = @trainer.Trainer
partitioning.PjitPartitioner.num_partitions = 1
seqio.Evaluator.num_examples = 2
utils.DatasetConfig:
  mixture_or_task_name = 'number_words'
  task_feature_lengths = {{'inputs': 52, 'targets': 44}}
  split = 'validation'
  batch_size = 64
  shuffle = False
  seed = 0
utils.RestoreCheckpointConfig.path = '{run}'
"""

SWITCH_MODEL = """
include 'quintet/switch_tiny.gin'
NUM_EMBEDDINGS = 384
"""
