"""Reads what `quintet convert` writes with the programs it is written for. Not run in CI: it needs PyPI.

    check_writers.py hf  --quintet build/quintet [--fixtures tests/fixtures] [--llama-cpp CHECKOUT]
    check_writers.py t5x --quintet build/quintet [--fixtures tests/fixtures] --t5x CHECKOUT
    check_writers.py h5py --quintet build/quintet [--fixtures tests/fixtures]

hf (torch environment: torch, transformers, safetensors, sentencepiece, protobuf, ctranslate2, gguf): each directory of fixtures/huggingface goes to native and back to
hf; transformers' from_pretrained gives the recorded logits and greedy ids, safetensors the same tensors as the directory it came from, CTranslate2 the
recorded greedy ids after its converter, the gguf package has a name for every tensor; transformers' tokenizer on a written SentencePiece vocabulary gives the
ids of `quintet tokenizer`; llama.cpp's convert_hf_to_gguf.py makes a file of the same tensors and pieces of it.

t5x (jax environment: tensorstore, flax, tensorflow): each T5X checkpoint of fixtures/checkpoint goes to native and back to t5x, bit for bit by
TensorStore and by T5X's own load_t5x_checkpoint, the optimizer's state and its unused slots, too; T5X's Checkpointer restores a train state from it.

h5py (h5py, numpy): the recipe of docs/usage/convert.md.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

os.environ.setdefault('OMP_NUM_THREADS', '1')
# Kinds that it knows: T5 1.0 and 1.1, mT5, ByT5.
CTRANSLATE2 = ('t5_1_0', 't5_1_1', 'flan', 'mt5', 'byt5')


def convert(ns, *arguments):
  done = subprocess.run([ns.quintet, 'convert', *map(str, arguments)], capture_output=True, text=True)
  assert done.returncode == 0, (arguments, done.stderr)
  return done


def tensors_of(folder):
  """Every tensor of a directory's safetensors or torch files, by the safetensors and torch libraries."""
  import torch
  from safetensors.torch import load_file
  found = {}
  for path in sorted(folder.glob('model*.safetensors')):
    found.update(load_file(path))
  for path in sorted(folder.glob('pytorch_model*.bin')):
    found.update(torch.load(path, weights_only=True))
  return found


def check_tensors(kind, before, after):
  """Equal bits; tied tables may be there once or several times."""
  import torch
  assert after, kind
  for name, tensor in after.items():
    if not before:
      continue
    if name == 'shared.weight' and 'decoder.embed_tokens.weight' in before:   # read by nobody where each stack has its own
      continue
    twin = before.get(name, before.get('shared.weight') if name == 'lm_head.weight' else None)
    assert twin is not None and twin.dtype == tensor.dtype and torch.equal(twin, tensor), (kind, name)


def check_logits(kind, folder, expected, arrays):
  import torch
  import transformers
  tied = json.loads((folder / 'config.json').read_text())['tie_word_embeddings']
  model, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation='eager', dtype=torch.float32, output_loading_info=True)
  model = model.eval()
  assert not info['missing_keys'] and not info['unexpected_keys'] and not info['mismatched_keys'], (kind, info)
  if model.config.model_type == 'umt5':
    model.config.tie_word_embeddings = tied   # transformers 5 takes it for tied whatever the file says
  by_steps = getattr(model.config, 'expert_capacity', 64) < 64   # as the answers were recorded: a capacity counts the tokens of a call
  worst = 0
  for i, (ids, target) in enumerate(zip(expected['inputs'], expected['targets'])):
    with torch.no_grad():
      logits = model(input_ids=torch.tensor([ids]), labels=torch.tensor([target])).logits[0].numpy()
      greedy = model.generate(input_ids=torch.tensor([ids]), do_sample=False, max_new_tokens=expected['new_tokens'], use_cache=by_steps)[0].tolist()[1:]
    want = arrays[f'logits_{i}']
    worst = max(worst, float(np.abs(logits - want).max() / np.abs(want).max()))
    answer = expected['answers'][i]['greedy'][0]['ids']
    assert greedy[:len(answer)] == answer, (kind, i, greedy, answer)
  assert worst <= expected['logits_rtol'], (kind, worst)
  return worst


def with_numbers(folder, out):
  """A copy of a directory without tokenizer, with one whose pieces are numbers: CTranslate2's converter wants one."""
  import shutil
  import transformers
  shutil.copytree(folder, out)
  size = json.loads((folder / 'config.json').read_text())['vocab_size']
  vocab = [('<pad>', 0.0), ('</s>', 0.0), ('<unk>', 0.0)] + [(f't{i}', -float(i)) for i in range(3, size)]
  transformers.T5Tokenizer(vocab=vocab, extra_ids=0).save_pretrained(out)
  return out


def check_ctranslate2(kind, folder, expected=None):
  """Its converter takes the directory; its greedy answers are the recorded ones."""
  import ctranslate2
  import transformers
  with tempfile.TemporaryDirectory() as out:
    out = pathlib.Path(out)
    if not (folder / 'tokenizer_config.json').exists():
      folder = with_numbers(folder, out / 'numbers')
    ctranslate2.converters.TransformersConverter(str(folder), load_as_float16=False).convert(str(out / 'model'), force=True)
    files = sorted(os.listdir(out / 'model'))
    assert 'model.bin' in files, (kind, files)
    if expected is None:
      return
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    translator = ctranslate2.Translator(str(out / 'model'), device='cpu', compute_type='float32', intra_threads=1)
    eos = json.loads((folder / 'config.json').read_text())['eos_token_id']
    for i, ids in enumerate(expected['inputs']):
      answer = [x for x in expected['answers'][i]['greedy'][0]['ids'] if x != eos]
      found = translator.translate_batch([tokenizer.convert_ids_to_tokens(ids)], beam_size=1, max_decoding_length=expected['new_tokens'])[0].hypotheses[0]
      assert found == tokenizer.convert_ids_to_tokens(answer), (kind, i, found, answer)


def check_llama_cpp(ns, folder):
  """llama.cpp's converter on a directory with a SentencePiece model: every tensor with its numbers, every piece."""
  import gguf
  from safetensors.numpy import load_file
  config, tensors = json.loads((folder / 'config.json').read_text()), load_file(folder / 'model.safetensors')
  with tempfile.TemporaryDirectory() as out:
    file = pathlib.Path(out) / 'model.gguf'
    done = subprocess.run([sys.executable, ns.llama_cpp / 'convert_hf_to_gguf.py', folder, '--outfile', file, '--outtype', 'f32'], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    reader = gguf.GGUFReader(file)
    found = {tensor.name: np.array(tensor.data) for tensor in reader.tensors}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.T5, config['num_layers'])
    assert len(found) == len(tensors), (found.keys(), tensors.keys())
    for name, tensor in tensors.items():
      assert np.array_equal(found[names.get_name(name, try_suffixes=('.weight',))], tensor), name
    assert len(reader.fields['tokenizer.ggml.tokens'].data) == config['vocab_size'], config['vocab_size']
  return len(tensors)


def check_gguf(kind, folder):
  """What llama.cpp's converter asks of a directory of T5: a GGUF name for every tensor (package gguf), the fields it reads, a unigram spiece.model."""
  import gguf
  from safetensors.numpy import load_file
  config = json.loads((folder / 'config.json').read_text())
  names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.T5, config['num_layers'])
  for name in load_file(folder / 'model.safetensors'):
    assert names.get_name(name, try_suffixes=('.weight', '.bias')), (kind, name)
  for field in ('n_positions', 'd_model', 'd_ff', 'num_layers', 'num_decoder_layers', 'num_heads', 'd_kv', 'layer_norm_epsilon', 'relative_attention_num_buckets',
                'decoder_start_token_id', 'vocab_size'):
    assert field in config, (kind, field)


def check_tokenizer(ns, folder, vocabulary, lines):
  """transformers' tokenizer on what we wrote gives the ids that our generate and seqio give."""
  import transformers
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  want = subprocess.run([ns.quintet, 'tokenizer', 'encode', *vocabulary], input='\n'.join(lines) + '\n', capture_output=True, text=True)
  assert want.returncode == 0, want.stderr
  for line, ids in zip(lines, want.stdout.splitlines()):
    assert tokenizer(line)['input_ids'][:-1] == [int(i) for i in ids.split()], (folder, line, tokenizer(line), ids)
  assert tokenizer.eos_token_id == 1 and tokenizer.pad_token_id == 0, folder
  # seqio takes sentinels in a text for letters; where there are any, the first has the last id.
  import sentencepiece
  pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / 'spiece.model')).get_piece_size()
  ids = tokenizer('one<extra_id_0> two<extra_id_9>')['input_ids']
  assert [i for i in ids if i >= pieces] == [pieces + 9, pieces], (folder, ids)


def run_hf(ns):
  import transformers
  from safetensors.numpy import load_file
  transformers.logging.set_verbosity_error()
  transformers.logging.disable_progress_bar()
  for source in sorted((ns.fixtures / 'huggingface').iterdir()):
    if source.name == 'encoder' or not (source / 'expected.json').exists():
      continue
    with tempfile.TemporaryDirectory() as out:
      out = pathlib.Path(out)
      convert(ns, source, out / 'native', '--to=native')
      convert(ns, out / 'native', out / 'hf', '--to=hf')
      convert(ns, out / 'native', out / 'sharded', '--to=hf', '--shard_size=20KB')
      expected = json.loads((source / 'expected.json').read_text())
      arrays = load_file(source / 'expected.safetensors')
      if source.name != 'tied_unscaled':
        check_tensors(source.name, tensors_of(source), tensors_of(out / 'hf'))
      worst = max(check_logits(source.name, out / form, expected, arrays) for form in ('hf', 'sharded'))
      done = [f'logits to {worst:.1e}, greedy ids equal']
      if source.name in CTRANSLATE2:
        check_ctranslate2(source.name, out / 'hf', expected)
        done.append('CTranslate2 gives the greedy ids')
      if not source.name.startswith('switch') and expected['dtype'] == 'float32':   # which NumPy reads
        check_gguf(source.name, out / 'hf')
        done.append('every tensor has a GGUF name')
      print(source.name + ':', '; '.join(done), flush=True)
  run_tokenizer(ns)


def run_tokenizer(ns):
  """A run of one step with a SentencePiece vocabulary of the fixtures, written as hf."""
  vocabulary = ns.fixtures / 'seqio' / 'vocab' / 'unigram_nmt_nfkc.model'
  with tempfile.TemporaryDirectory() as out:
    out = pathlib.Path(out)
    (out / 'pieces.gin').write_text(f"""
VOCABULARY = @seqio.SentencePieceVocabulary()
seqio.SentencePieceVocabulary.sentencepiece_model_file = '{vocabulary}'
seqio.SentencePieceVocabulary.extra_ids = 10
network.T5Config.vocab_size = 512
train_script.train.verify_matching_vocabs_fn = None
""")
    sizes = [f'--gin.network.T5Config.{name}=16' for name in ('emb_dim', 'mlp_dim')]
    done = subprocess.run([ns.quintet, 'train', '--gin_file=quintet/quickstart.gin', f'--gin_file={out}/pieces.gin', f'--model_dir={out}/run', '--gin.TRAIN_STEPS=4',
                           '--gin.WARMUP_STEPS=2', '--gin.BATCH_SIZE=4', '--gin.train_script.train.infer_eval_dataset_cfg=None', *sizes], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    convert(ns, out / 'run', out / 'hf', '--to=hf')
    lines = ['a line of text', 'Words, and 12 numbers', '  spaces   inside ', 'caf\u00e9 \u2014 \uff21', 'x']
    check_tokenizer(ns, out / 'hf', [f'--model={vocabulary}', '--extra_ids=10'], lines)
    check_ctranslate2('pieces', out / 'hf')
    check_gguf('pieces', out / 'hf')
    print(f'a SentencePiece vocabulary: ids of {len(lines)} lines equal; CTranslate2 takes it', flush=True)
    if ns.llama_cpp:
      print(f"llama.cpp's convert_hf_to_gguf.py: {check_llama_cpp(ns, out / 'hf')} tensors and every piece", flush=True)


def flat(tree, prefix=''):
  for key, value in tree.items():
    if isinstance(value, dict):
      yield from flat(value, f'{prefix}{key}/')
    else:
      yield prefix + key, np.asarray(value)


def by_tensorstore(folder):
  import flax.serialization
  import tensorstore
  def read(tree, prefix=''):
    for key, value in tree.items():
      if isinstance(value, dict) and 'kvstore' in value:
        value['kvstore']['path'] = str(folder / value['kvstore']['path'])
        yield prefix + key, tensorstore.open(value, open=True).result().read().result()
      elif isinstance(value, dict):
        yield from read(value, f'{prefix}{key}/')
      else:
        yield prefix + key, np.asarray(value)
  content = flax.serialization.msgpack_restore((folder / 'checkpoint').read_bytes())
  assert content['version'] == 3
  return dict(read(content['optimizer']))


def import_t5x(checkout):
  """t5x without what it imports and this needs not."""
  os.environ.setdefault('ORACLE_REF', str(checkout.parent))
  sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), str(checkout)]
  import oracle_common
  oracle_common.stub('airio', 'airio.core', 'airio.pygrain_common', 'jestimator', 'jestimator.amos')
  import jax
  if not hasattr(jax.config, 'jax_use_shardy_partitioner'):
    type(jax.config).jax_use_shardy_partitioner = False
  from t5x import checkpoints
  return checkpoints


def restored_by_t5x(model_dir, case):
  """T5X's Checkpointer restores step 3 into a fresh train state of the fixture's model, strictly."""
  import jax
  import jax.numpy as jnp
  import seqio
  from t5x import adafactor, checkpoints, models, partitioning, train_state
  from t5x.examples.t5 import network
  sizes = {**case['config'], 'dtype': jnp.float32}
  config = network.T5Config(**{name: tuple(value) if isinstance(value, list) else value for name, value in sizes.items()})
  optimizer = adafactor.Adafactor(decay_rate=0.8, step_offset=0, min_dim_size_to_factor=case['min_dim_size_to_factor'],
                                  logical_factor_rules=adafactor.standard_logical_factor_rules())
  vocabulary = seqio.PassThroughVocabulary(size=config.vocab_size, eos_id=1)
  model = models.EncoderDecoderModel(module=network.Transformer(config=config), input_vocabulary=vocabulary, output_vocabulary=vocabulary,
                                     optimizer_def=optimizer)
  shapes = {name: (2, 5) for name in ('encoder_input_tokens', 'decoder_input_tokens', 'decoder_target_tokens')}
  variables = model.get_initial_variables(jax.random.PRNGKey(7), shapes, {name: jnp.int32 for name in shapes})
  state = jax.tree_util.tree_map(np.asarray, train_state.FlaxOptimTrainState.create(optimizer, variables))
  partitioner = partitioning.PjitPartitioner(num_partitions=1)
  return dict(flat(checkpoints.Checkpointer(state, partitioner, str(model_dir)).restore(step=3).state_dict()))


def run_t5x(ns):
  checkpoints = import_t5x(ns.t5x.resolve())
  cases = json.loads((ns.fixtures / 'checkpoint' / 'checkpoint.json').read_text())['cases']
  for case in sorted((ns.fixtures / 'checkpoint').iterdir()):
    for source in sorted(case.glob('t5x*/checkpoint_3')):
      if case.name == 'scalable_t5':  # scanned layers become a layer each
        continue
      with tempfile.TemporaryDirectory() as out:
        out = pathlib.Path(out)
        convert(ns, source, out / 'native', '--to=native', *gin_of(cases[case.name]))
        convert(ns, out / 'native' / 'checkpoint_3', out / 't5x', '--to=t5x')
        ours, theirs = out / 't5x' / 'checkpoint_3', by_tensorstore(source)
        others = [by_tensorstore(ours), dict(flat(checkpoints.load_t5x_checkpoint(str(ours))))]
        others.append(restored_by_t5x(out / 't5x', cases[case.name]))
        for found in others:
          assert found.keys() == theirs.keys(), found.keys() ^ theirs.keys()
          for name, array in theirs.items():
            other = found[name].astype(array.dtype) if found is others[2] else found[name]   # restored in float32
            assert other.dtype == array.dtype and other.tobytes() == array.tobytes() and other.shape == array.shape, name
        print(f'{case.name}/{source.parent.name}: {len(theirs)} arrays equal by TensorStore, load_t5x_checkpoint and Checkpointer.restore', flush=True)


def gin_of(case):
  """Flags that say what the model of a bare checkpoint is."""
  skipped = ('dtype', 'dropout_rate', 'float32_attention_logits')
  return ['--gin_file=t5x/examples/t5/t5_1_1/small.gin', '--gin.DROPOUT_RATE=0.0', '--gin.VOCABULARY=@seqio.PassThroughVocabulary()',
          f"--gin.seqio.PassThroughVocabulary.size={case['config']['vocab_size']}",
          *(f'--gin.network.T5Config.{name}={value!r}' for name, value in case['config'].items() if name not in skipped)]


def run_h5py(ns):
  """The block of docs/usage/convert.md, with another folder, against the tensor by quintet inspect."""
  text = (pathlib.Path(__file__).resolve().parents[2] / 'docs' / 'usage' / 'convert.md').read_text()
  recipe = text.split('```python\n')[1].split('```')[0]
  assert 'h5py' in recipe and '/tmp/tour' in recipe, recipe
  with tempfile.TemporaryDirectory() as out:
    out = pathlib.Path(out)
    convert(ns, ns.fixtures / 'huggingface' / 't5_1_0', out / 'run', '--to=native')
    names = {}
    exec(recipe.replace('/tmp/tour', str(out / 'run')), names)   # pylint: disable=exec-used
    npy = out / 'table.npy'
    subprocess.run([ns.quintet, 'inspect', out / 'run', '--tensor=target/token_embedder/embedding', f'--output={npy}'], check=True)
    assert np.array_equal(names['table'], np.load(npy)) and names['table'].ndim == 2
    print(f"h5py: {names['table'].shape} equal to quintet inspect --output", flush=True)


def main():
  ap = argparse.ArgumentParser()
  ap.add_argument('what', choices=('hf', 't5x', 'h5py'))
  ap.add_argument('--quintet', required=True)
  ap.add_argument('--fixtures', type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1] / 'fixtures')
  ap.add_argument('--t5x', type=pathlib.Path, help='a checkout of google-research/t5x')
  ap.add_argument('--llama-cpp', type=pathlib.Path, help='a checkout of llama.cpp: its convert_hf_to_gguf.py is run')
  ns = ap.parse_args()
  {'hf': run_hf, 't5x': run_t5x, 'h5py': run_h5py}[ns.what](ns)


if __name__ == '__main__':
  main()
