"""Reads what `quintet convert` writes with the programs it is written for. Not run in CI: it needs PyPI.

    check_writers.py hf  --quintet build/quintet [--fixtures tests/fixtures]
    check_writers.py t5x --quintet build/quintet [--fixtures tests/fixtures] --t5x CHECKOUT

hf (torch environment: torch, transformers, safetensors, ctranslate2): each directory of fixtures/huggingface goes to native and back to hf;
transformers' from_pretrained gives the recorded logits and greedy ids, safetensors the same tensors as the directory it came from,
CTranslate2's converter takes it, the gguf package has a name for every tensor; transformers' tokenizer on a written SentencePiece vocabulary gives the
ids of `quintet tokenizer`.

t5x (jax environment: tensorstore, flax, t5x on the path): each T5X checkpoint of fixtures/checkpoint goes to native and back to t5x, bit for bit by
TensorStore and by T5X's own load_t5x_checkpoint, the optimizer's state, too.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np


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
  worst = 0
  for i, (ids, target) in enumerate(zip(expected['inputs'], expected['targets'])):
    with torch.no_grad():
      logits = model(input_ids=torch.tensor([ids]), labels=torch.tensor([target])).logits[0].numpy()
      greedy = model.generate(input_ids=torch.tensor([ids]), do_sample=False, max_new_tokens=expected['new_tokens'], use_cache=False)[0].tolist()[1:]
    want = arrays[f'logits_{i}']
    worst = max(worst, float(np.abs(logits - want).max() / np.abs(want).max()))
    answer = expected['answers'][i]['greedy'][0]['ids']
    assert greedy[:len(answer)] == answer, (kind, i, greedy, answer)
  assert worst <= expected['logits_rtol'], (kind, worst)
  return worst


def check_ctranslate2(kind, folder):
  import ctranslate2
  with tempfile.TemporaryDirectory() as out:
    ctranslate2.converters.TransformersConverter(str(folder), load_as_float16=False).convert(out, force=True)
    files = sorted(os.listdir(out))
  assert 'model.bin' in files, (kind, files)


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
      if (out / 'hf' / 'tokenizer_config.json').exists() and source.name != 'switch':
        check_ctranslate2(source.name, out / 'hf')
        done.append('CTranslate2 takes it')
      if source.name != 'switch' and expected['dtype'] == 'float32':   # which NumPy reads
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
    lines = ['a line of text', 'Words, and 12 numbers', '  spaces   inside ', 'caf\u00e9 \u2014 \uff21', 'one<extra_id_0> two', 'x']
    check_tokenizer(ns, out / 'hf', [f'--model={vocabulary}', '--extra_ids=10'], lines)
    check_ctranslate2('pieces', out / 'hf')
    check_gguf('pieces', out / 'hf')
    print(f'a SentencePiece vocabulary: ids of {len(lines)} lines equal; CTranslate2 takes it', flush=True)


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


def run_t5x(ns):
  sys.path.insert(0, str(ns.t5x))
  from t5x import checkpoints
  for case in sorted((ns.fixtures / 'checkpoint').iterdir()):
    for source in sorted(case.glob('t5x*/checkpoint_3')):
      with tempfile.TemporaryDirectory() as out:
        out = pathlib.Path(out)
        convert(ns, source, out / 'native', '--to=native', *ns.gin)
        convert(ns, out / 'native' / 'checkpoint_3', out / 't5x', '--to=t5x')
        ours, theirs = out / 't5x' / 'checkpoint_3', by_tensorstore(source)
        found = by_tensorstore(ours)
        loaded = dict(flat(checkpoints.load_t5x_checkpoint(str(ours))))
        assert found.keys() == theirs.keys(), found.keys() ^ theirs.keys()
        for name, array in theirs.items():
          for other in (found[name], loaded[name]):
            assert other.dtype == array.dtype and other.tobytes() == array.tobytes() and other.shape == array.shape, name
        print(f'{case.name}/{source.parent.name}: {len(theirs)} arrays equal by TensorStore and by load_t5x_checkpoint', flush=True)


def main():
  ap = argparse.ArgumentParser()
  ap.add_argument('what', choices=('hf', 't5x'))
  ap.add_argument('--quintet', required=True)
  ap.add_argument('--fixtures', type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1] / 'fixtures')
  ap.add_argument('--t5x', type=pathlib.Path, help='a checkout of google-research/t5x')
  ap.add_argument('--gin', action='append', default=[], help='flags for converting from a bare T5X checkpoint')
  ns = ap.parse_args()
  {'hf': run_hf, 't5x': run_t5x}[ns.what](ns)


if __name__ == '__main__':
  main()
