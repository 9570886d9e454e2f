#!/usr/bin/env python3
"""Loading, saving and restoring against other programs, in one run on one machine.

bench/load_compare.py [--quintet build/quintet] [--sizes 250,3000] [--threads 2] [--folder /tmp/load-compare] [--orbax-python PYTHON] [--only load|checkpoint|convert]

load: Hugging Face directories of about so many MB with random weights (made once in --folder, kept for the next run), in the page cache:
  cat          every byte once through a buffer
  mapping      the weights' file mapped with its pages, as llama.cpp maps, and every byte summed; in a fresh process
  quintet      open and check the files, read the weights without packing, read and pack them, first token (quintet bench load), and the whole process of `quintet generate` for one token
  transformers from_pretrained and the first token of generate, in a fresh process; imports apart
  CTranslate2  Translator and the first token, in a fresh process, of a model converted before (whose time is told apart)
checkpoint: as many MB in 100 float32 tensors, written to disk to the last byte (fsync) and read back:
  quintet      quintet bench checkpoint: the background's writing, and restoring with every checksum
  copy         a plain copy of the same bytes with fsync, and reading them
  torch.save   and torch.load
  orbax        PyTreeCheckpointer, if --orbax-python names a Python that has it
convert: the same directories, read back and compared, in the folder's file system:
  copy         a plain copy of the weights' file with fsync, and the same followed by cmp, which reads it back as a conversion does
  quintet      quintet convert to each format, the whole process, its processor time and its peak memory
               in turns, after sync: a disk's speed changes; times_copy and times_copy_and_cmp are medians of the repeats' own ratios
Times are the least of --repeat runs. One JSON object a line on stdout, a table on stderr. Needs torch, transformers 5, safetensors; ctranslate2.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

BASE = dict(architectures=['T5ForConditionalGeneration'], model_type='t5', feed_forward_proj='gated-gelu', tie_word_embeddings=False, d_kv=64, num_layers=12, num_decoder_layers=12,
            relative_attention_num_buckets=32, relative_attention_max_distance=128, layer_norm_epsilon=1e-6, dropout_rate=0.1, pad_token_id=0, eos_token_id=1,
            decoder_start_token_id=0, is_encoder_decoder=True)
TORCH = '''
import sys, time
begin = time.perf_counter()
import torch, transformers
from transformers import AutoModelForSeq2SeqLM
torch.set_num_threads(int(sys.argv[2]))
imported = time.perf_counter()
m = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
loaded = time.perf_counter()
with torch.no_grad():
  m.generate(torch.ones(1, 16, dtype=torch.long), max_new_tokens=1, do_sample=False)
print(imported - begin, loaded - imported, time.perf_counter() - loaded)
'''
CTRANSLATE2 = '''
import sys, time
begin = time.perf_counter()
import ctranslate2
imported = time.perf_counter()
t = ctranslate2.Translator(sys.argv[1], device='cpu', compute_type='float32', intra_threads=int(sys.argv[2]))
loaded = time.perf_counter()
t.translate_batch([['<unk>'] * 16], beam_size=1, max_decoding_length=1)
print(imported - begin, loaded - imported, time.perf_counter() - loaded)
'''
MAPPING = '''
import mmap, sys, time
import numpy as np
begin = time.perf_counter()
with open(sys.argv[1], 'rb') as f:
  mapped = mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE | mmap.MAP_POPULATE, mmap.PROT_READ)
there = time.perf_counter()
np.frombuffer(mapped, np.uint64, len(mapped) // 8).sum()
print(there - begin, time.perf_counter() - begin)
'''
TORCH_SAVE = '''
import os, sys, time, torch
file, megabytes = sys.argv[1], int(sys.argv[2])
state = {f'layer_{i}': torch.full((megabytes * 1000000 // 100 // 2048, 512), float(i)) for i in range(100)}
begin = time.perf_counter()
torch.save(state, file)
fd = os.open(file, os.O_RDONLY)
os.fsync(fd)
saved = time.perf_counter()
back = torch.load(file)
print(saved - begin, time.perf_counter() - saved)
'''
ORBAX = '''
import sys, time, numpy as np
import orbax.checkpoint as ocp
folder, megabytes = sys.argv[1], int(sys.argv[2])
state = {f'layer_{i}': np.full((megabytes * 1000000 // 100 // 2048, 512), i, np.float32) for i in range(100)}
c = ocp.PyTreeCheckpointer()
begin = time.perf_counter()
c.save(folder, state)
saved = time.perf_counter()
back = c.restore(folder)
print(saved - begin, time.perf_counter() - saved)
'''
# A child's peak counts its parent's at the time of the fork: a small parent.
PEAK = '''
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_maxrss, used.ru_utime + used.ru_stime)
'''


def report(kind, size, name, **values):
  print(json.dumps(dict(bench=kind, megabytes=round(size), program=name, **{k: round(v, 4) for k, v in values.items()})), flush=True)
  print(f'{kind:10} {size:7.0f} MB  {name:14}' + ''.join(f'  {k.removesuffix("_seconds").replace("_", " ")} {v:.3f}' for k, v in values.items()), file=sys.stderr, flush=True)


def least(runs):
  return [min(column) for column in zip(*runs)]


def python(code, *arguments, program=sys.executable):
  out = subprocess.run([program, '-c', code, *map(str, arguments)], capture_output=True, text=True)
  if out.returncode:
    raise RuntimeError(out.stderr[-2000:])
  return [float(x) for x in out.stdout.split()[-3:]]


def make_model(folder, megabytes):
  """the width whose float32 weights come nearest to that size"""
  vocab = 32128
  parameters = lambda d: 2 * vocab * d + 12 * (4 * d * d + 3 * d * 4 * d) + 12 * (8 * d * d + 3 * d * 4 * d)
  width = min(range(64, 8192, 64), key=lambda d: abs(parameters(d) * 4 - megabytes * 1e6))
  c = dict(BASE, vocab_size=vocab, d_model=width, d_ff=4 * width, num_heads=width // 64)
  path = os.path.join(folder, f'model-{megabytes}')
  if os.path.exists(os.path.join(path, 'config.json')):
    return path
  import numpy as np
  from safetensors.numpy import save_file
  os.makedirs(path, exist_ok=True)
  rng = np.random.default_rng(0)
  tensor = lambda *shape: rng.standard_normal(shape, np.float32) * shape[-1] ** -0.5
  sd = {'shared.weight': tensor(vocab, width), 'lm_head.weight': tensor(vocab, width)}
  for side in ('encoder', 'decoder'):
    sd[f'{side}.final_layer_norm.weight'] = np.ones(width, np.float32)
    sd[f'{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight'] = tensor(32, width // 64)
    for i in range(12):
      layers = ['SelfAttention'] + (['EncDecAttention'] if side == 'decoder' else [])
      for n, attention in enumerate(layers):
        sd[f'{side}.block.{i}.layer.{n}.layer_norm.weight'] = np.ones(width, np.float32)
        for part in 'qkvo':
          sd[f'{side}.block.{i}.layer.{n}.{attention}.{part}.weight'] = tensor(width, width)
      last = f'{side}.block.{i}.layer.{len(layers)}'
      sd[f'{last}.layer_norm.weight'] = np.ones(width, np.float32)
      for part, shape in (('wi_0', (4 * width, width)), ('wi_1', (4 * width, width)), ('wo', (width, 4 * width))):
        sd[f'{last}.DenseReluDense.{part}.weight'] = tensor(*shape)
  save_file(sd, os.path.join(path, 'model.safetensors'), metadata={'format': 'pt'})
  json.dump(c, open(os.path.join(path, 'config.json'), 'w'))
  return path


def file_size(folder):
  return sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder)) / 1e6


def compare_load(ns, megabytes):
  path = make_model(ns.folder, megabytes)
  size = file_size(path)
  ours = json.loads(subprocess.run([ns.quintet, 'bench', 'load', f'--model_dir={path}', f'--threads={ns.threads}', f'--repeat={ns.repeat}'], check=True,
                                   capture_output=True, text=True).stdout)
  report('load', size, 'cat', read_seconds=ours['cat_seconds'])
  mapped, read = least([python(MAPPING, os.path.join(path, 'model.safetensors')) for _ in range(ns.repeat)])
  report('load', size, 'mapping', map_seconds=mapped, read_seconds=read)
  report('load', size, 'quintet', **{k: ours[k] for k in ('open_seconds', 'read_seconds', 'pack_seconds', 'usable_seconds', 'first_token_seconds')},
         read_times_cat=(ours['open_seconds'] + ours['read_seconds']) / ours['cat_seconds'], usable_times_cat=ours['usable_seconds'] / ours['cat_seconds'])
  runs = []
  for _ in range(ns.repeat):
    begin = time.perf_counter()
    subprocess.run([ns.quintet, 'generate', f'--model_dir={path}', f'--threads={ns.threads}', '--ids', '--max_tokens=1', ' '.join(['1'] * 16)], check=True, capture_output=True)
    runs.append([time.perf_counter() - begin])
  report('load', size, 'quintet generate', process_seconds=least(runs)[0])
  imported, usable, first = least([python(TORCH, path, ns.threads) for _ in range(ns.repeat)])
  report('load', size, 'transformers', import_seconds=imported, usable_seconds=usable, first_token_seconds=first)
  converted = path + '-ctranslate2'
  begin = time.perf_counter()
  if not os.path.exists(converted):
    convert_to_ctranslate2(path, converted)
    report('load', size, 'CTranslate2 converter', convert_seconds=time.perf_counter() - begin)
  imported, usable, first = least([python(CTRANSLATE2, converted, ns.threads) for _ in range(ns.repeat)])
  report('load', size, 'CTranslate2', import_seconds=imported, usable_seconds=usable, first_token_seconds=first)


def convert_to_ctranslate2(path, converted):
  """Its converter wants a tokenizer: one whose pieces are numbers does."""
  import ctranslate2
  from transformers import T5Tokenizer
  with tempfile.TemporaryDirectory() as d:
    for f in os.listdir(path):
      os.symlink(os.path.abspath(os.path.join(path, f)), os.path.join(d, f))
    vocab = [('<pad>', 0.0), ('</s>', 0.0), ('<unk>', 0.0)] + [(f't{i}', -float(i)) for i in range(3, 32128)]
    T5Tokenizer(vocab=vocab, extra_ids=0).save_pretrained(d)
    ctranslate2.converters.TransformersConverter(d).convert(converted)


def write_copy(source, target):
  """as cp with fsync"""
  with open(source, 'rb') as a, open(target, 'wb') as b:
    while part := a.read(1 << 22):
      b.write(part)
    b.flush()
    os.fsync(b.fileno())


def copy_and_compare(source, target):
  begin = time.perf_counter()
  write_copy(source, target)
  subprocess.run(['cmp', source, target], check=True)
  os.remove(target)
  return time.perf_counter() - begin


def copy(source, target):
  """written, then read"""
  begin = time.perf_counter()
  write_copy(source, target)
  written = time.perf_counter()
  with open(target, 'rb', buffering=0) as a:
    buffer = bytearray(1 << 20)
    while a.readinto(buffer):
      pass
  os.remove(target)
  return written - begin, time.perf_counter() - written


def compare_checkpoint(ns, megabytes):
  with tempfile.TemporaryDirectory(dir=ns.folder) as d:
    ours = json.loads(subprocess.run([ns.quintet, 'bench', 'checkpoint', '--device=cpu', f'--megabytes={megabytes}', f'--dir={d}/ours', f'--saves={ns.repeat}'], check=True,
                                     capture_output=True, text=True).stdout)
    report('checkpoint', megabytes, 'quintet', stall_seconds=ours['stall_seconds'], save_seconds=ours['write_seconds'], restore_seconds=ours['restore_seconds'])
    source = os.path.join(d, 'source')
    with open(source, 'wb') as f:
      for _ in range(megabytes):
        f.write(os.urandom(1000) * 1000)
    save, restore = least([copy(source, os.path.join(d, 'copy')) for _ in range(ns.repeat)])
    report('checkpoint', megabytes, 'copy', save_seconds=save, restore_seconds=restore)
    save, restore = least([python(TORCH_SAVE, os.path.join(d, 'torch'), megabytes) for _ in range(ns.repeat)])
    report('checkpoint', megabytes, 'torch.save', save_seconds=save, restore_seconds=restore)
    if ns.orbax_python:
      save, restore = least([python(ORBAX, os.path.join(d, f'orbax-{i}'), megabytes, program=ns.orbax_python) for i in range(ns.repeat)])
      report('checkpoint', megabytes, 'orbax', save_seconds=save, restore_seconds=restore)


def convert(ns, path, target, to):
  """Seconds, of the processor too, and peak in MiB."""
  begin = time.perf_counter()
  done = subprocess.run([sys.executable, '-c', PEAK, ns.quintet, 'convert', path, target, f'--to={to}', f'--threads={ns.threads}'], check=True, capture_output=True, text=True)
  seconds = time.perf_counter() - begin
  shutil.rmtree(target)
  peak, processor = map(float, done.stdout.split())
  return seconds, processor, peak / 1024


def compare_convert(ns, megabytes):
  path = make_model(ns.folder, megabytes)
  size = file_size(path)
  weights = os.path.join(path, 'model.safetensors')
  formats = ('native', 'hf', 't5x')
  copies, compared, runs = [], [], {to: [] for to in formats}
  with tempfile.TemporaryDirectory(dir=ns.folder) as d:
    for _ in range(ns.repeat):
      for times, work in ((copies, lambda: copy(weights, os.path.join(d, 'copy'))[0]), (compared, lambda: copy_and_compare(weights, os.path.join(d, 'copy')))):
        os.sync()
        times.append(work())
      for to in formats:
        os.sync()
        runs[to].append(convert(ns, path, os.path.join(d, to), to))
  report('convert', size, 'copy', save_seconds=min(copies))
  report('convert', size, 'copy and cmp', convert_seconds=min(compared))
  for to in formats:
    seconds, processor, peak = zip(*runs[to])
    ratio = lambda others: statistics.median(a / b for a, b in zip(seconds, others))
    report('convert', size, f'quintet {to}', convert_seconds=min(seconds), times_copy=ratio(copies), times_copy_and_cmp=ratio(compared), processor_seconds=min(processor),
           peak_mebibytes=max(peak))


def main():
  ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  ap.add_argument('--quintet', default=os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'build', 'quintet'))
  ap.add_argument('--sizes', default='250,3000', help='MB of the models and of the states')
  ap.add_argument('--threads', type=int, default=os.cpu_count())
  ap.add_argument('--repeat', type=int, default=3)
  ap.add_argument('--folder', default=os.path.join(tempfile.gettempdir(), 'load-compare'))
  ap.add_argument('--orbax-python', help='a Python that has orbax-checkpoint')
  ap.add_argument('--only', choices=['load', 'checkpoint', 'convert'])
  ns = ap.parse_args()
  os.makedirs(ns.folder, exist_ok=True)
  for megabytes in map(int, ns.sizes.split(',')):
    for what, compare in (('load', compare_load), ('checkpoint', compare_checkpoint), ('convert', compare_convert)):
      if ns.only in (None, what):
        compare(ns, megabytes)


if __name__ == '__main__':
  main()
