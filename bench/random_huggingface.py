#!/usr/bin/env python3
"""Random models of each kind that transformers publishes, answered by quintet and by transformers.

bench/random_huggingface.py [--quintet build/quintet] [--seed N] [--models 24] [KIND ...]

Every model is drawn anew from the seed: kind, sizes (an odd vocabulary, heads whose width is not d_model / heads, stacks of different depth), file format,
dtype of the weights, tokens, activation. Compared are greedy search, 4 beams (length penalties 1, 0 and 2), scores, the log-probabilities of given
answers and of all other tokens in their places, embeddings of encoders. One line a model; exit status 1 if one differs. Needs torch, transformers 5, safetensors; flax for its files.
"""
import argparse
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location('gen_huggingface', os.path.join(HERE, '..', 'tests', 'oracles', 'gen_huggingface.py'))
gen = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gen)
SCORE = 1e-4
LOGITS = 2e-5  # of the largest
EMBEDDING = 2e-5


def config(kind, rng):
  heads, encoder, decoder = rng.choice([1, 2, 3, 5, 6]), rng.randrange(1, 5), rng.randrange(1, 5)
  c = dict(gen.BASE, vocab_size=rng.choice([37, 97, 131, 250, 401]), d_model=rng.choice([8, 12, 20, 33, 48, 65]), d_kv=rng.choice([3, 4, 7, 8, 16, 19]),
           d_ff=rng.choice([9, 24, 40, 65, 130]), num_layers=encoder, num_decoder_layers=decoder, num_heads=heads,
           relative_attention_num_buckets=rng.choice([32, 32, 8, 12, 20, 64]), relative_attention_max_distance=rng.choice([128, 128, 20, 40, 250]))
  c.update({'t5': gen.T5, 't5_gated': gen.T5, 'mt5': gen.MT5, 'umt5': gen.UMT5, 'switch': gen.SWITCH, 'encoder': gen.T5}[kind])
  if kind == 'switch':
    c.update(num_experts=rng.choice([1, 2, 4, 5, 7]), num_sparse_encoder_layers=rng.randrange(encoder + 2), num_sparse_decoder_layers=rng.randrange(decoder + 2),
             dense_act_fn=rng.choice(['relu', 'relu', 'gelu_new', 'silu']), tie_word_embeddings=rng.random() < 0.6, expert_capacity=rng.choice([64, 64, 1, 3, 9]))
    if decoder > encoder:  # transformers' cache has as many layers as the encoder, and without a cache a decoder's tokens are left out, too
      c.update(expert_capacity=64)
  elif kind == 't5':
    c.update(feed_forward_proj='relu')
    tied = rng.choice([None, True, False])
    if tied is not None:
      c.update(tie_word_embeddings=tied)
    if rng.random() < 0.3:
      c.update(scale_decoder_outputs=rng.random() < 0.5)
  else:
    c.update(rng.choice([dict(feed_forward_proj='gated-gelu'), dict(feed_forward_proj='gated-silu'), dict(feed_forward_proj='relu'), dict(feed_forward_proj='gelu_new'),
                         dict(feed_forward_proj='gated-gelu', dense_act_fn='gelu_new', is_gated_act=True), dict(feed_forward_proj='silu'), dict(feed_forward_proj='gated-relu')]))
    c.update(tie_word_embeddings=rng.random() < 0.3)
  if kind == 'encoder':
    c.update(architectures=['T5EncoderModel'])
  if rng.random() < 0.3 and kind != 'encoder':
    c.update(eos_token_id=rng.choice([1, 5, [1, 7], [9]]))
  return c


def run(quintet, folder, inputs, *flags):
  command = [quintet, 'generate', '--model_dir=' + folder, '--ids', '--format=json', *flags, *inputs]
  out = subprocess.run(command, capture_output=True, text=True)
  if out.returncode:
    raise RuntimeError(f'{" ".join(command)}: {out.returncode}: {out.stderr.strip()}')
  return [json.loads(line) for line in out.stdout.splitlines()]


def eos_of(c):
  return c['eos_token_id'] if isinstance(c['eos_token_id'], list) else [c['eos_token_id']]


def cut(ids, eos):
  for i, x in enumerate(ids):
    if x in eos:
      return ids[:i + 1]
  return ids


def theirs(m, c, ids, tokens, **kw):
  """ids and score of transformers' answer, and how close the next best was to it at any step"""
  with torch.no_grad():
    o = m.generate(input_ids=torch.tensor([ids]), do_sample=False, max_new_tokens=tokens, use_cache=c.get('expert_capacity', 64) < 64, return_dict_in_generate=True,
                   output_scores=True,
                   eos_token_id=c['eos_token_id'], **kw)
  made = cut(o.sequences[0].tolist()[1:], eos_of(c))
  if 'num_beams' in kw:
    return made, float(o.sequences_scores[0])
  return made, float(sum(torch.log_softmax(o.scores[t][0].double(), -1)[x] for t, x in enumerate(made)))


def compare_answers(quintet, folder, m, c, rng):
  top, eos = c['vocab_size'] - 1, eos_of(c)
  inputs = [[rng.randrange(2, top) for _ in range(rng.choice([1, 3, 9, 40]))] + [1] for _ in range(3)]
  texts = [' '.join(map(str, x)) for x in inputs]
  wrong, worst = [], 0.0
  for name, flags, kw in [('greedy', [], {}), ('beams', ['--beams=4'], dict(num_beams=4)), ('sums', ['--beams=4', '--length_penalty=0'], dict(num_beams=4, length_penalty=0.0)),
                          ('long', ['--beams=3', '--length_penalty=2'], dict(num_beams=3, length_penalty=2.0))]:
    ours = run(quintet, folder, texts, '--max_tokens=10', *flags)
    for x, a in zip(inputs, ours):
      ids, score = theirs(m, c, x, 10, **kw)
      worst = max(worst, abs(a['score'] - score)) if a['ids'] == ids else worst
      if a['ids'] != ids:
        wrong.append(f'{name} of {x}: {a["ids"]} ({a["score"]:.6f}), transformers {ids} ({score:.6f})')
  target = [rng.randrange(2, top) for _ in range(5)] + [eos[0]]
  for router in m.decoder.modules():  # a given answer is read token by token here, as generate() with its cache reads: none is left out
    if hasattr(router, 'expert_capacity'):
      router.expert_capacity = len(target)
  with torch.no_grad():
    logits = m(input_ids=torch.tensor([inputs[0]]), labels=torch.tensor([target])).logits[0].double()
  log_probs = torch.log_softmax(logits, -1)
  score = float(sum(log_probs[t, x] for t, x in enumerate(target)))
  ours = run(quintet, folder, texts[:1], '--target=' + ' '.join(map(str, target)), f'--logprobs={c["vocab_size"]}')[0]
  worst = max(worst, abs(ours['score'] - score))
  apart = max(abs(x['logprob'] - float(log_probs[t, x['id']])) for t, token in enumerate(ours['tokens']) for x in token['top'])
  if apart > LOGITS * float(logits.abs().max()):
    wrong.append(f'log-probabilities differ by {apart:.2e}, logits are up to {float(logits.abs().max()):.2f}')
  if worst > SCORE:
    wrong.append(f'a score differs by {worst:.2e}')
  return wrong, f'{worst:.1e}'


def compare_embeddings(quintet, folder, m, c, rng):
  inputs = [[rng.randrange(2, c['vocab_size'] - 1) for _ in range(n)] + [1] for n in (1, 4, 30)]
  worst = 0.0
  for x, mean, tokens in zip(inputs, *(run(quintet, folder, [' '.join(map(str, x)) for x in inputs], '--embed=' + kind) for kind in ('mean', 'tokens'))):
    with torch.no_grad():
      want = m(input_ids=torch.tensor([x])).last_hidden_state[0].numpy()
    scale = np.abs(want).max()
    worst = max(worst, np.abs(np.array(tokens['embeddings']) - want).max() / scale, np.abs(np.array(mean['embedding']) - want.mean(0)).max() / scale)
  return ([f'embeddings differ by {worst:.2e} of the largest'] if worst > EMBEDDING else []), f'{worst:.1e}'


def one(quintet, kind, seed, keep):
  rng, numbers = random.Random(f'{kind} {seed}'), np.random.default_rng(seed)
  c = config(kind, rng)
  dtype = rng.choice(['float32', 'float32', 'bfloat16', 'float16'])
  formats = ['safetensors', 'torch', 'torch_legacy', 'safetensors_sharded', 'torch_sharded', 'torch_strided', 'saved', 'saved']
  if importlib.util.find_spec('flax') and kind in ('t5', 't5_gated', 'mt5') and dtype != 'float16':
    formats.append('flax')
  fmt = rng.choice(formats)
  sd = {k: v.to(getattr(torch, dtype)) for k, v in gen.draw(numbers, gen.shapes_of(c), c, rng.choice([1.0, 1.5])).items()}
  if kind == 'switch' and not c['tie_word_embeddings'] and rng.random() < 0.5:  # one table, as Google's untied ones would be
    sd.update({f'{side}.embed_tokens.weight': sd['shared.weight'].clone() for side in ('encoder', 'decoder')})
  m = gen.load(c, sd)
  folder = tempfile.mkdtemp(prefix=f'random-{kind}-')
  try:
    if fmt == 'saved':  # by transformers itself, its config.json and generation_config.json, too
      m.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=rng.choice(['20KB', '50GB']))
      m.float()
    else:
      json.dump(c, open(os.path.join(folder, 'config.json'), 'w'))
      gen.write(folder, sd, fmt, dtype)
    compare = compare_embeddings if kind == 'encoder' else compare_answers
    wrong, worst = compare(quintet, folder, m, c, rng)
  except RuntimeError as error:
    wrong, worst = [str(error)], '-'
  sizes = ', '.join(f'{k}={c[k]}' for k in ('vocab_size', 'd_model', 'd_kv', 'num_heads', 'num_layers', 'num_decoder_layers', 'eos_token_id'))
  print(f'{"DIFFERS" if wrong else "equal":8} {kind} {seed}: {fmt} {dtype}, {c.get("feed_forward_proj")}, {sizes}; largest difference {worst}', flush=True)
  for line in wrong:
    print('        ', line, flush=True)
  if wrong and keep:
    print('         kept:', folder, flush=True)
  else:
    shutil.rmtree(folder)
  return not wrong


def main():
  ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  ap.add_argument('--quintet', default=os.path.join(HERE, '..', 'build', 'quintet'))
  ap.add_argument('--seed', type=int, default=1)
  ap.add_argument('--models', type=int, default=24)
  ap.add_argument('--keep', action='store_true', help='leave the directories of models that differ')
  ap.add_argument('kinds', nargs='*', default=[])
  ns = ap.parse_args()
  kinds = ns.kinds or ['t5', 't5_gated', 'mt5', 'umt5', 'switch', 'encoder']
  results = [one(ns.quintet, kinds[i % len(kinds)], ns.seed * 1000 + i, ns.keep) for i in range(ns.models)]
  print(f'{sum(results)} of {len(results)} models equal')
  sys.exit(0 if all(results) else 1)


if __name__ == '__main__':
  main()
