"""huggingface_tokenizers/<kind>/: tokenizers of Hugging Face directories, and the ids and texts that AutoTokenizer gives.

Reference: transformers 5.23, tokenizers 0.23 (sentencepiece 0.2.3 trains the pieces):
gen_huggingface_tokenizers.py --out tests/fixtures/huggingface_tokenizers [--seed N] [KIND ...]

DIR/<kind>/config.json, tokenizer.json or spiece.model, tokenizer_config.json ...   as published
DIR/<kind>/expected.json   texts and ids (the end token included); decoded: texts of ids without padding and end tokens
"""
import argparse
import json
import os
import random
import shutil
import tempfile
import unicodedata
import sentencepiece
import tokenizers
import transformers
from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer
from transformers.convert_slow_tokenizer import import_protobuf
transformers.logging.set_verbosity_error()

WORDS = ('the cat sat on a mat and the dog ran to town where rivers meet small hills translate English to German : How old are you ? summarize '
         'straße café naïve Zürich data model token 12 345 2026 state of the art').split()
ODD = ['é', 'e\u0301', 'ﬁ', 'Å', 'Ａ', '１', '…', '™', 'ß', 'Ω', '日', '本語', 'हिन्दी', 'क्ष', '👩\u200d👩\u200d👧', '🇩🇪', '🙂', '\u00a0', '\u3000', '\u200b', '\ufeff', '\u00ad', '\t', '\n',
       '\r\n', '  ', '   ', '▁', '▁▁', 'İ', 'ǆ', '½', '㎏', '\u0300', 'a\u0308', '\u1100\u1161', '<', '>', '</', '<extra_id_', '_0>', 'x\u0000y', '\x7f', '\u2028', '\x1c']
# A few of nmt_nfkc's rules, the rest of its characters left alone: the whole map is 240 kB.
RULES = {'e\u0301': 'é', 'a\u0308': 'ä', 'ﬁ': 'fi', 'Ａ': 'A', '１': '1', '…': '...', '™': 'TM', '\u00a0': ' ', '\u3000': ' ', '\t': ' ', '\n': ' ', '\r': ' ', '½': '1/2', '㎏': 'kg', '\u00ad': '',
         '\u200b': ' ', '\ufeff': '', '\u1100\u1161': '가', '\x7f': ''}


def train(folder, rng, **options):
  corpus, rules = os.path.join(folder, 'corpus'), os.path.join(folder, 'rules.tsv')
  open(corpus, 'w').write(''.join(' '.join(rng.choices(WORDS, k=8)) + '\n' for _ in range(400)))
  open(rules, 'w').write(''.join('%s\t%s\n' % (' '.join('%X' % ord(c) for c in a), ' '.join('%X' % ord(c) for c in b)) for a, b in RULES.items()))
  sentencepiece.SentencePieceTrainer.train(input=corpus, model_prefix=os.path.join(folder, 'm'), model_type='unigram', normalization_rule_tsv=rules,
                                           pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2, num_threads=1, **options)
  return os.path.join(folder, 'm.model')


def proto(file):
  m = import_protobuf().ModelProto()
  m.ParseFromString(open(file, 'rb').read())
  return m


def save_json(value, *path):
  json.dump(value, open(os.path.join(*path), 'w'), indent=1)


def own_backend(model, **change):
  """a tokenizer.json of the tokenizers library, with everything that it may hold"""
  m = proto(model)
  t = tokenizers.Tokenizer(tokenizers.models.Unigram([(p.piece, p.score) for p in m.pieces], 2, change.get('byte_fallback', False)))
  if change.get('normalizer', True):
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(m.normalizer_spec.precompiled_charsmap), normalizers.Strip(left=False, right=True),
                                         normalizers.Replace(Regex(' {2,}'), '▁'), normalizers.Replace('dog', 'cat')])
  t.pre_tokenizer = change['pre']
  t.decoder = change['decoder']
  if change.get('eos', True):
    t.post_processor = processors.TemplateProcessing(single='$A </s>', pair='$A </s> $B </s>', special_tokens=[('</s>', 1)])
  t.add_special_tokens([AddedToken(x, normalized=False) for x in ('<pad>', '</s>', '<unk>')])
  t.add_tokens([AddedToken('<left>', lstrip=True, normalized=False), AddedToken('<right>', rstrip=True, normalized=False),
                AddedToken('Café', normalized=True), AddedToken('mat', single_word=True), AddedToken('<both>', lstrip=True, rstrip=True),
                AddedToken('<left>er', normalized=False)])
  t.add_special_tokens([f'<extra_id_{i}>' for i in range(3)])
  return t


FAST = dict(tokenizer_class='PreTrainedTokenizerFast', eos_token='</s>', pad_token='<pad>', unk_token='<unk>')
OLD = dict(tokenizer_class='T5Tokenizer', eos_token='</s>', pad_token='<pad>', unk_token='<unk>')
EXTRA = [f'<extra_id_{i}>' for i in range(100)]


def t5_json(d, spm, rng):
  """what save_pretrained writes today"""
  shutil.copy(spm(), os.path.join(d, 'spiece.model'))
  t = AutoTokenizer.from_pretrained(d)
  t.add_tokens([AddedToken('<mine>', rstrip=True), 'summarize:'])
  t.save_pretrained(d)
  os.remove(os.path.join(d, 'spiece.model'))


def t5_json_without_settings(d, spm, rng):
  """the first tokenizer.json files had no tokenizer_config.json of T5Tokenizer's beside them"""
  t5_json(d, spm, rng)
  os.remove(os.path.join(d, 'tokenizer_config.json'))


def t5_spiece(d, spm, rng):
  """google/t5-v1_1-small"""
  shutil.copy(spm(), os.path.join(d, 'spiece.model'))
  save_json(dict(OLD, extra_ids=100, additional_special_tokens=EXTRA), d, 'tokenizer_config.json')
  save_json(dict(eos_token='</s>', unk_token='<unk>', pad_token='<pad>', additional_special_tokens=EXTRA), d, 'special_tokens_map.json')


def t5_spiece_decoder(d, spm, rng):
  """what transformers 4.34 and newer write: every added token by its id"""
  model = spm()
  size = len(proto(model).pieces)
  shutil.copy(model, os.path.join(d, 'spiece.model'))
  flags = dict(lstrip=False, rstrip=False, single_word=False)
  tokens = {i: dict(content=x, special=True, normalized=False, **flags) for i, x in enumerate(('<pad>', '</s>', '<unk>'))}
  tokens.update({size + i: dict(content=f'<extra_id_{99 - i}>', special=True, normalized=False, lstrip=True, rstrip=True, single_word=False) for i in range(100)})
  tokens[size + 100] = dict(content='<mine>', special=False, normalized=True, **flags)
  save_json(dict(OLD, extra_ids=100, additional_special_tokens=EXTRA, added_tokens_decoder=tokens, legacy=True), d, 'tokenizer_config.json')


def mt5_spiece(d, spm, rng):
  """google/mt5-small: no extra ids"""
  shutil.copy(spm(), os.path.join(d, 'spiece.model'))
  save_json(dict(OLD, extra_ids=0, additional_special_tokens=None), d, 'tokenizer_config.json')


def user_symbols(d, spm, rng):
  shutil.copy(spm(user_defined_symbols=['<sep>', 'to town']), os.path.join(d, 'spiece.model'))


def sequence_first(d, spm, rng):
  t = own_backend(spm(byte_fallback=True, vocab_size=330), byte_fallback=True,
                  pre=pre_tokenizers.Metaspace(prepend_scheme='first'),
                  decoder=decoders.Sequence([decoders.Replace('▁', ' '), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(' ', 1, 0)]))
  t.save(os.path.join(d, 'tokenizer.json'))
  save_json(FAST, d, 'tokenizer_config.json')


def never_no_end(d, spm, rng):
  t = own_backend(spm(), normalizer=False, eos=False, pre=pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.Metaspace(prepend_scheme='never', split=False)]),
                  decoder=decoders.Metaspace(prepend_scheme='never'))
  t.save(os.path.join(d, 'tokenizer.json'))
  save_json(FAST, d, 'tokenizer_config.json')


def t5_class_other_pipeline(d, spm, rng):
  """T5Tokenizer takes the pieces and the map of such a file, and has the rest of its own"""
  t = own_backend(spm(), pre=pre_tokenizers.Metaspace(prepend_scheme='first'), decoder=decoders.Metaspace())
  t.save(os.path.join(d, 'tokenizer.json'))
  save_json(dict(OLD, extra_ids=3, additional_special_tokens=EXTRA[:3]), d, 'tokenizer_config.json')


def umt5(d, spm, rng):
  t = own_backend(spm(), pre=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]), decoder=decoders.Metaspace())
  t.save(os.path.join(d, 'tokenizer.json'))
  save_json(OLD, d, 'tokenizer_config.json')


def byt5(d, spm, rng):
  save_json(dict(tokenizer_class='ByT5Tokenizer', eos_token='</s>', pad_token='<pad>', unk_token='<unk>', extra_ids=125,
                 additional_special_tokens=[f'<extra_id_{i}>' for i in range(125)]), d, 'tokenizer_config.json')


def byt5_bare(d, spm, rng):
  save_json(dict(tokenizer_class='ByT5Tokenizer'), d, 'tokenizer_config.json')


KINDS = {f.__name__: (f, model_type) for f, model_type in [
    (t5_json, 't5'), (t5_json_without_settings, 't5'), (t5_spiece, 't5'), (t5_spiece_decoder, 't5'), (mt5_spiece, 'mt5'), (user_symbols, 'switch_transformers'),
    (sequence_first, 't5'), (never_no_end, 't5'), (t5_class_other_pipeline, 't5'), (umt5, 'umt5'), (byt5, 't5'), (byt5_bare, 't5')]}
TOKENS = ['<extra_id_0>', '<extra_id_1>', '<extra_id_99>', '</s>', '<pad>', '<unk>', '<mine>', '<left>', '<right>', '<both>', '<left>er', 'Café', 'Cafe\u0301', 'mat',
          'summarize:', '<sep>', 'to town', '<extra_id_124>']


def character(rng):
  """assigned since Unicode 14: newer ones are of one grapheme or of two by the library's version"""
  c = chr(rng.choice([rng.randrange(32, 127), rng.randrange(160, 0x2000)]))
  return c if unicodedata.category(c) != 'Cn' else character(rng)


def text(rng):
  parts = []
  for _ in range(rng.randrange(1, 12)):
    parts.append(rng.choice([rng.choice(WORDS), rng.choice(WORDS), rng.choice(ODD), rng.choice(TOKENS), character(rng)]))
  return rng.choice(['', ' ', '']).join(parts)


def record(kind, out, seed):
  make, model_type = KINDS[kind]
  rng = random.Random(f'{kind} {seed}')
  folder = os.path.join(out, kind)
  shutil.rmtree(folder, ignore_errors=True)
  os.makedirs(folder)
  save_json(dict(model_type=model_type), folder, 'config.json')
  with tempfile.TemporaryDirectory() as tmp:
    make(folder, lambda **o: train(tmp, rng, **dict(dict(vocab_size=76, character_coverage=1.0), **o)), rng)
  t = AutoTokenizer.from_pretrained(folder)
  fixed = ['', ' ', 'Hello', '  two  spaces  ', 'a<extra_id_0>b', ' <extra_id_0> <extra_id_1>', 'x</s>', '</s>']
  texts = [x for x in fixed if x] + [text(rng) for _ in range(1000 if kind in ('t5_json', 't5_spiece') else 150)]
  ids = [t(x).input_ids for x in texts]
  lists = [[i for i in (rng.randrange(2, len(t)) for _ in range(rng.randrange(1, 9))) if i not in (0, 1)] for _ in range(60)]
  json.dump(dict(reference=f'transformers {transformers.__version__}, tokenizers {tokenizers.__version__}, {type(t).__name__}', size=len(t), texts=texts, ids=ids,
                 decode_ids=[] if kind.startswith('byt5') else lists, decoded=[] if kind.startswith('byt5') else [t.decode(x) for x in lists]), open(os.path.join(folder, 'expected.json'), 'w'), separators=(',', ':'))
  for f in os.listdir(folder):
    os.chmod(os.path.join(folder, f), 0o644)
  print(kind, type(t).__name__, len(t), sum(map(len, ids)), flush=True)


def main():
  ap = argparse.ArgumentParser()
  ap.add_argument('--out', required=True)
  ap.add_argument('--seed', type=int, default=0)
  ap.add_argument('kinds', nargs='*')
  ns = ap.parse_args()
  for kind in ns.kinds or KINDS:
    record(kind, ns.out, ns.seed)


if __name__ == '__main__':
  main()
