"""huggingface/<kind>/: tiny directories of every kind of T5 that transformers publishes, and what it says on them.

Reference: transformers 5.23, torch 2.15 (CPU, float32); flax 0.12 writes the msgpack file. Run with the torch environment's python:
gen_huggingface.py --out tests/fixtures/huggingface [KIND ...]

DIR/<kind>/config.json and weights     as published: safetensors, torch.save's archive, its older form, flax's msgpack, one file or several
DIR/<kind>/expected.json               inputs, targets, greedy and beam-4 answers with scores, tolerances
DIR/<kind>/expected.safetensors        logits_<i> [tokens of target i, vocab]; encoded_<i> [tokens of input i, d_model]

Ids have no start token and no padding; answers hold the end token if they reached it. score: sum of log-probabilities; beams: divided by
length ** length_penalty, the end token counted. Weights are drawn until answers vary and float64 gives the same ids.

switch_capacity: answers are made with keys and values cached, as by default, so that a decoder's tokens are routed one by one and none is left
out; logits are of whole targets, where some are. switch_two_tables: encoder and decoder have embeddings of their own.

umT5: transformers 5 scales its decoder's outputs whatever config.json says, transformers 4 and T5X as it says. Recorded as it says.
"""
import argparse
import json
import os
import shutil
import tempfile
import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from transformers import AutoConfig, AutoModelForSeq2SeqLM, T5EncoderModel
torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

BASE = dict(vocab_size=96, d_model=24, d_kv=8, d_ff=40, num_layers=2, num_decoder_layers=2, num_heads=3, relative_attention_num_buckets=32,
            relative_attention_max_distance=128, dropout_rate=0.1, layer_norm_epsilon=1e-6, initializer_factor=1.0, pad_token_id=0, eos_token_id=1,
            decoder_start_token_id=0, is_encoder_decoder=True, use_cache=True)
GATED = dict(feed_forward_proj='gated-gelu', tie_word_embeddings=False)
T5 = dict(model_type='t5', architectures=['T5ForConditionalGeneration'])
MT5 = dict(model_type='mt5', architectures=['MT5ForConditionalGeneration'], tokenizer_class='T5Tokenizer')
UMT5 = dict(model_type='umt5', architectures=['UMT5ForConditionalGeneration'], tokenizer_class='T5Tokenizer', scalable_attention=True)
SWITCH = dict(model_type='switch_transformers', architectures=['SwitchTransformersForConditionalGeneration'], num_experts=4, expert_capacity=64,
              num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, router_jitter_noise=0.01, router_bias=False, router_dtype='float32',
              router_ignore_padding_tokens=False, router_z_loss_coef=0.001, router_aux_loss_coef=0.001, add_router_probs=False, router_type='tokens_masked',
              dense_act_fn='relu', is_gated_act=False, feed_forward_proj='relu', tie_word_embeddings=True)
KINDS = {  # config, format, dtype of the weights
    't5_1_0': (dict(T5, feed_forward_proj='relu', n_positions=512, output_past=True, task_specific_params={'summarization': {'num_beams': 4}}),
               'safetensors', 'float32'),
    't5_1_0_head_repeated': (dict(T5, feed_forward_proj='relu'), 'torch', 'float32'),
    't5_1_1': (dict(T5, **GATED), 'torch', 'float32'),
    'flan': (dict(T5, **GATED, dense_act_fn='gelu_new', is_gated_act=True, n_positions=512), 'safetensors_sharded', 'float32'),
    'gelu_erf': (dict(T5, **GATED, dense_act_fn='gelu', is_gated_act=True), 'safetensors', 'float32'),
    'mt5': (dict(MT5, **GATED, vocab_size=120, num_heads=4, d_kv=6), 'torch_sharded', 'float32'),
    'umt5': (dict(UMT5, **GATED, num_layers=3, num_decoder_layers=2), 'torch', 'float32'),
    'byt5': (dict(T5, **GATED, vocab_size=384, num_layers=3, num_decoder_layers=1, tokenizer_class='ByT5Tokenizer', gradient_checkpointing=False),
             'torch_legacy', 'float32'),
    'switch': (SWITCH, 'safetensors', 'float32'),
    'switch_steps': (dict(SWITCH, num_layers=5, num_sparse_encoder_layers=2, num_decoder_layers=3, num_sparse_decoder_layers=1, num_experts=3,
                          dense_act_fn='gelu_new', expert_capacity=1 << 20, encoder_sparse_step=2, decoder_sparse_step=3), 'torch', 'float32'),
    'switch_one_expert': (dict(SWITCH, num_experts=1, num_layers=1, num_decoder_layers=1, expert_capacity=1 << 20), 'safetensors', 'float32'),
    'switch_capacity': (dict(SWITCH, num_layers=3, num_sparse_encoder_layers=3, num_experts=3, expert_capacity=2), 'safetensors', 'float32'),
    'switch_router_bias': (dict(SWITCH, num_experts=3, router_bias=True, dense_act_fn='gelu', expert_capacity=1 << 20), 'safetensors', 'float32'),
    'switch_two_tables': (dict(SWITCH, num_experts=2, tie_word_embeddings=False), 'torch', 'float32'),
    'buckets': (dict(T5, feed_forward_proj='gated-silu', tie_word_embeddings=False, relative_attention_num_buckets=12,
                     relative_attention_max_distance=20, d_model=20, d_kv=5), 'safetensors', 'float32'),
    'tied_unscaled': (dict(T5, feed_forward_proj='relu', scale_decoder_outputs=False), 'safetensors', 'float32'),
    'bfloat16': (dict(T5, **GATED, torch_dtype='bfloat16'), 'safetensors', 'bfloat16'),
    'float16': (dict(T5, **GATED, torch_dtype='float16'), 'torch', 'float16'),
    'flax': (dict(T5, **GATED), 'flax', 'float32'),
    'flax_bfloat16': (dict(T5, feed_forward_proj='relu'), 'flax', 'bfloat16'),
    'strided': (dict(T5, **GATED), 'torch_strided', 'float32'),
    'encoder': (dict(T5, **GATED, architectures=['T5EncoderModel']), 'safetensors', 'float32'),
}
LENGTHS = (9, 4, 30)
NEW_TOKENS = 12


def draw(rng, shapes, c, push):
  out = {}
  tied = c.get('tie_word_embeddings', True)
  for name, shape in shapes.items():
    n = rng.standard_normal(shape).astype(np.float32)
    if 'layer_norm' in name:
      n = 1 + 0.2 * n
      if tied and name == 'decoder.final_layer_norm.weight':
        n *= 6 * rng.choice([-1.0, 1.0], shape)   # otherwise a tied model mostly repeats the token it was given
    elif 'relative_attention_bias' in name:
      n *= 0.8
    elif name.endswith('classifier.bias'):
      n *= 1.5   # enough to change which experts are chosen
    elif name == 'shared.weight' or 'embed_tokens' in name:
      n *= 0.35 if tied else 1.0
      n[0] *= 0.05
    elif name == 'lm_head.weight':
      n *= 1.6 * shape[1] ** -0.5
      n[0] *= 0.05
    elif name.endswith('.q.weight'):
      n *= 1.5 * (shape[1] * c['d_kv']) ** -0.5
    elif name.endswith('.k.weight'):
      n *= 1.5 * shape[1] ** -0.5
    elif name.endswith('.o.weight') or name.endswith('.wo.weight'):
      n *= push * shape[1] ** -0.5
    else:
      n *= shape[1] ** -0.5 * (3 if 'router' in name else 1)
    out[name] = torch.tensor(n.astype(np.float32))
  return out


def shapes_of(c):
  with tempfile.TemporaryDirectory() as d:
    json.dump(c, open(os.path.join(d, 'config.json'), 'w'))
    m = model_class(c)(AutoConfig.from_pretrained(d)) if c['architectures'] == ['T5EncoderModel'] else AutoModelForSeq2SeqLM.from_config(
        AutoConfig.from_pretrained(d))
  apart = c['model_type'] == 'switch_transformers' and not c['tie_word_embeddings']   # transformers 5 ties no table of such a model
  shapes = {k: tuple(v.shape) for k, v in m.state_dict().items() if apart or 'embed_tokens' not in k}
  if c.get('tie_word_embeddings', True) or c['architectures'] == ['T5EncoderModel']:
    shapes.pop('lm_head.weight', None)
  return shapes


def model_class(c):
  return T5EncoderModel if c['architectures'] == ['T5EncoderModel'] else AutoModelForSeq2SeqLM


def load(c, sd):
  with tempfile.TemporaryDirectory() as d:
    json.dump(c, open(os.path.join(d, 'config.json'), 'w'))
    save_file({k: v.float().numpy() for k, v in sd.items()}, os.path.join(d, 'model.safetensors'), metadata={'format': 'pt'})
    m = model_class(c).from_pretrained(d, attn_implementation='eager', dtype=torch.float32).eval()
  if c['model_type'] == 'umt5':
    m.config.tie_word_embeddings = c['tie_word_embeddings']
  return m


def answers(m, ids, **kw):
  by_steps = getattr(m.config, 'expert_capacity', 64) < 64
  with torch.no_grad():
    o = m.generate(input_ids=torch.tensor([ids]), do_sample=False, max_new_tokens=NEW_TOKENS, use_cache=by_steps, return_dict_in_generate=True,
                   output_scores=True, num_return_sequences=kw.get('num_beams', 1), **kw)
  rows = []
  for r, s in enumerate(o.sequences.tolist()):
    made = s[1:]
    if 1 in made:
      made = made[:made.index(1) + 1]
    if 'num_beams' in kw:
      score = float(o.sequences_scores[r])
    else:
      score = float(sum(torch.log_softmax(o.scores[t][0].double(), -1)[x] for t, x in enumerate(made)))
    rows.append(dict(ids=made, score=round(score, 6)))
  return rows


def forward(m, c, ids, target):
  with torch.no_grad():
    if c['architectures'] == ['T5EncoderModel']:
      return None, m(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy()
    o = m(input_ids=torch.tensor([ids]), labels=torch.tensor([target]))
  return o.logits[0].float().numpy(), o.encoder_last_hidden_state[0].float().numpy()


def all_answers(m, inputs):
  return [dict(greedy=answers(m, x), beam4=answers(m, x, num_beams=4), beam4_length_penalty_0=answers(m, x, num_beams=4, length_penalty=0.0)) for x in inputs]


def ids_only(all_of):
  return [[[r['ids'] for r in rows] for rows in one.values()] for one in all_of]


def choose(rng, c, dtype, inputs):
  shapes = shapes_of(c)
  for attempt in range(200):
    sd = draw(rng, shapes, c, [1.0, 1.5][attempt % 2])
    sd = {k: v.to(getattr(torch, dtype)) for k, v in sd.items()}
    m = load(c, sd)
    if c['architectures'] == ['T5EncoderModel']:
      return sd, m, None
    first = [answers(m, x)[0]['ids'] for x in inputs]
    varied = min(len(set(r)) for r in first) >= 3 and len({tuple(r) for r in first}) == len(first) and any(len(r) < NEW_TOKENS for r in first)
    if not varied and attempt < 150:
      continue
    out = all_answers(m, inputs)
    if ids_only(out) == ids_only(all_answers(load(c, sd).double(), inputs)):
      return sd, m, out
  raise RuntimeError('no weights found')


def flax_tree(sd):
  """transformers' flax names: kernels are [in, out], embeddings have names of their own"""
  tree = {}
  for name, v in sd.items():
    path = name.split('.')[:-1]
    a = v.float().numpy()
    leaf = 'weight' if 'layer_norm' in name else 'embedding' if 'shared' in name or 'relative' in name else 'kernel'
    at = tree
    for p in path:
      at = at.setdefault(p, {})
    at[leaf] = a.T.copy() if leaf == 'kernel' else a
  return tree


def shards(sd):
  names = sorted(sd)
  return [names[:len(names) // 2], names[len(names) // 2:]]


def write(folder, sd, fmt, dtype):
  P = lambda f: os.path.join(folder, f)
  sd = {k: v.contiguous() for k, v in sd.items()}
  if fmt.endswith('_sharded'):
    torch_file = fmt.startswith('torch')
    stem, ext = ('pytorch_model', 'bin') if torch_file else ('model', 'safetensors')
    weight_map = {}
    for i, names in enumerate(shards(sd)):
      file = f'{stem}-{i + 1:05}-of-00002.{ext}'
      part = {k: sd[k] for k in names}
      torch.save(part, P(file)) if torch_file else save_torch(part, P(file))
      weight_map.update({k: file for k in names})
    total = sum(v.numel() * v.element_size() for v in sd.values())
    json.dump(dict(metadata=dict(total_size=total), weight_map=weight_map), open(P(f'{stem}.{ext}.index.json'), 'w'), indent=1)
  elif fmt == 'safetensors':
    save_torch(sd, P('model.safetensors'))
  elif fmt == 'torch':
    torch.save(sd, P('pytorch_model.bin'))
  elif fmt == 'torch_legacy':
    torch.save(sd, P('pytorch_model.bin'), _use_new_zipfile_serialization=False)
  elif fmt == 'torch_strided':   # parameters, transposed storage, one storage for several tensors
    joined = torch.cat([sd[k].flatten() for k in sorted(sd) if k.endswith('.q.weight')])
    out, at = {}, 0
    for k in sorted(sd):
      if k.endswith('.q.weight'):
        out[k] = joined[at:at + sd[k].numel()].view(sd[k].shape)
        at += sd[k].numel()
      elif k.endswith('.wo.weight'):
        out[k] = torch.nn.Parameter(sd[k].T.contiguous().T)
      else:
        out[k] = torch.nn.Parameter(sd[k])
    torch.save(out, P('pytorch_model.bin'))
  elif fmt == 'flax':
    import flax.serialization
    import jax.numpy as jnp
    import jax
    tree = jax.tree.map(lambda a: jnp.asarray(a, getattr(jnp, dtype)), flax_tree(sd))
    open(P('flax_model.msgpack'), 'wb').write(flax.serialization.to_bytes(tree))


def save_torch(sd, path):
  from safetensors.torch import save_file as save
  save(sd, path, metadata={'format': 'pt'})
  os.chmod(path, 0o644)


def record(kind, out):
  overrides, fmt, dtype = KINDS[kind]
  c = dict(BASE, **overrides)
  rng = np.random.default_rng(sum(map(ord, kind)))
  top = c['vocab_size'] - 1
  inputs = [rng.integers(2, top, n - 1).tolist() + [1] for n in LENGTHS]
  targets = [rng.integers(2, top, n).tolist() + [1] for n in (5, 8, 2)]
  sd, m, generated = choose(rng, c, dtype, inputs)
  folder = os.path.join(out, kind)
  shutil.rmtree(folder, ignore_errors=True)
  os.makedirs(folder)
  json.dump(c, open(os.path.join(folder, 'config.json'), 'w'), indent=1, sort_keys=True)
  if c.get('tokenizer_class') == 'ByT5Tokenizer':
    json.dump(dict(tokenizer_class='ByT5Tokenizer', extra_ids=125), open(os.path.join(folder, 'tokenizer_config.json'), 'w'))
  arrays, log_probs = {}, []
  for i, (x, y) in enumerate(zip(inputs, targets)):
    logits, arrays[f'encoded_{i}'] = forward(m, c, x, y)
    if logits is None:
      continue
    arrays[f'logits_{i}'] = logits
    lp = torch.log_softmax(torch.tensor(logits).double(), -1)
    log_probs.append(round(float(sum(lp[t, y[t]] for t in range(len(y)))), 6))
  if kind == 't5_1_0_head_repeated':
    sd['lm_head.weight'] = sd['encoder.embed_tokens.weight'] = sd['decoder.embed_tokens.weight'] = sd['shared.weight']
  write(folder, sd, fmt, dtype)
  save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, os.path.join(folder, 'expected.safetensors'))
  os.chmod(os.path.join(folder, 'expected.safetensors'), 0o644)
  json.dump(dict(reference=f'transformers {transformers.__version__}, torch {torch.__version__.split("+")[0]} (CPU, float32, eager attention)', format=fmt,
                 dtype=dtype, tied=c.get('tie_word_embeddings', True), new_tokens=NEW_TOKENS, logits_rtol=2e-5, score_atol=1e-4, inputs=inputs,
                 targets=targets, target_log_probs=log_probs, answers=generated),
            open(os.path.join(folder, 'expected.json'), 'w'), indent=1)
  print(kind, None if generated is None else [len(a['greedy'][0]['ids']) for a in generated], flush=True)


def corpus(out):
  """files of a few tensors each for tests/fuzz, below tests/corpus"""
  sd = {'a.weight': torch.arange(6.0).view(2, 3), 'b.weight': torch.nn.Parameter(torch.arange(4.0).view(2, 2).T), 'c.weight': torch.ones(3).bfloat16(),
        'd.weight': torch.ones(3).half()}
  sd['e.weight'] = sd['a.weight']
  for kind in ('torch', 'flax'):
    os.makedirs(os.path.join(out, kind), exist_ok=True)
  torch.save(sd, os.path.join(out, 'torch', 'archive'))
  torch.save(dict(state_dict=sd, step=3), os.path.join(out, 'torch', 'archive_of_a_program'))
  torch.save(sd, os.path.join(out, 'torch', 'older'), _use_new_zipfile_serialization=False)
  import flax.serialization
  one = {'a': {'kernel': np.arange(6, dtype=np.float32).reshape(2, 3)}, 'shared': {'embedding': np.ones((3, 2), np.float16)}}
  open(os.path.join(out, 'flax', 'arrays'), 'wb').write(flax.serialization.msgpack_serialize(one))
  size, flax.serialization.MAX_CHUNK_SIZE = flax.serialization.MAX_CHUNK_SIZE, 8
  open(os.path.join(out, 'flax', 'chunks'), 'wb').write(flax.serialization.msgpack_serialize(one))
  flax.serialization.MAX_CHUNK_SIZE = size


def main():
  ap = argparse.ArgumentParser()
  ap.add_argument('--out', required=True)
  ap.add_argument('--corpus', help='write the corpus of tests/fuzz into this folder instead')
  ap.add_argument('kinds', nargs='*')
  ns = ap.parse_args()
  if ns.corpus:
    return corpus(ns.corpus)
  for kind in ns.kinds or KINDS:
    record(kind, ns.out)


if __name__ == '__main__':
  main()
