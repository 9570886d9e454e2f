"""seqio/more/: preprocessors, converters and vocabularies that gen_seqio.py leaves out.

Reference: seqio 0.0.20, t5 0.9.4, tensorflow 2.16.2, tensorflow-text 2.16.1, all from PyPI (environment t of setup_env.sh).
Run with $ORACLE_ENVS/t/bin/python gen_seqio_more.py --out DIR; writes DIR/more. The rows have the form of gen_seqio.py's.
"""
import argparse
import json
import os
import tempfile
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
import numpy as np
import tensorflow as tf
import seqio
import textgen
import t5.data.preprocessors as prep
from seqio import feature_converters as fc
from sentencepiece import sentencepiece_model_pb2


def spec(value):
  if isinstance(value, dict):
    return {k: spec(v) for k, v in value.items()}
  shape = [None] * np.ndim(value)
  leaf = value
  while isinstance(leaf, list):
    leaf = leaf[0] if leaf else 0
  dtype = tf.string if isinstance(leaf, str) else tf.float32 if isinstance(leaf, float) else tf.int32
  return tf.TensorSpec(shape, dtype)


def ds_of(rows):
  signature = {k: spec(v) for k, v in rows[0].items()}
  def cast(s, v):
    return {k: cast(s[k], v[k]) for k in v} if isinstance(v, dict) else np.asarray(v, s.dtype.as_numpy_dtype) if s.shape.rank else v
  return tf.data.Dataset.from_generator(lambda: ({k: cast(signature[k], v) for k, v in r.items()} for r in rows), output_signature=signature)


def plain(value):
  if isinstance(value, dict):
    return {k: plain(v) for k, v in value.items()}
  if isinstance(value, bytes):
    return value.decode()
  value = np.asarray(value)
  if value.dtype == object:
    return [plain(v) for v in value]
  if value.dtype == np.float32:
    return value.astype(np.float64).round(7).tolist()
  return value.tolist()


def save(path, rows):
  os.makedirs(os.path.dirname(path), exist_ok=True)
  with open(path, 'w', encoding='utf-8') as f:
    for row in rows:
      f.write(json.dumps(row, ensure_ascii=False) + '\n')


def text_preprocessors():
  cases = []
  def add(fn, args, rows, function=None, **kwargs):
    outs = [plain(x) for x in (function or getattr(prep, fn))(ds_of(rows), **args, **kwargs).as_numpy_iterator()]
    cases.append(dict(fn=fn, args=args, inputs=rows, outputs=outs))

  for language in ('es', 'fr', 'ro', 'zh', 'ja', 'cs', 'fi', 'gu', 'kk', 'lt', 'ru', 'et', 'lv', 'tr', 'sw', 'pt'):
    add('translate', dict(source_language='en', target_language=language), [{'en': 'a', language: 'b'}])
  add('pad_nonspaced_languages', {}, [dict(text=t) for t in textgen.UNICODE])
  add('pad_nonspaced_languages', dict(text_key='targets'), [dict(targets='สวัสดี  ကမ္ဘာ', other='你好')])
  add('filter_by_string_length', dict(feature_key='text', min_length=2, max_length=5), [dict(text=t) for t in textgen.UNICODE])
  page = dict(wiki_context=['Paris is the capital. It is big.', 'London (U.K.) isn\'t.'])
  results = dict(search_context=['PARIS, paris.', 'nothing here', 'a.b-c'])
  for question, aliases in (('Where?', ['paris', 'city of light']), ('What (so)?', ['u k', 'a.b', 'isn\'t']), ('None?', ['rome'])):
    add('trivia_qa', {}, [dict(question=question, answer=dict(normalized_aliases=aliases), entity_pages=page, search_results=results)])
  add('trivia_qa', {}, [dict(question='Only pages?', answer=dict(normalized_aliases=['paris']), entity_pages=page)])
  squad = [dict(id='i%d' % i, context=c, question='q %d?' % i, answers=dict(text=a)) for i, (c, a) in enumerate([
      ('The cat sat. On the mat!', ['cat sat']), ('The cat sat. On the mat!', ['mat']), ('One two  three', ['two', 'one']),
      ('naïve café, déjà vu', ['déjà']), ('It\'s 3-4 (x)', ['3-4']), ('nothing', ['else'])])]
  add('squad', {}, squad)
  add('squad_span_space_tokenized', {}, squad)
  pairs = [dict(text=t) for t in ('One. Two! Three? Four', 'no end', 'A... B?!\nC. D.\n\n  E.  F.  ', '.', '', 'x.y. z')]
  add('neighboring_pairs', {}, pairs)
  add('neighboring_pairs', dict(reuse_sentences=False), pairs)
  add('split_text_to_words', dict(min_num_words=3), [dict(text=t) for t in textgen.UNICODE])
  add('stsb', {}, [dict(sentence1='a', sentence2='b', label=x / 40, idx=i) for i, x in enumerate(range(0, 201, 3))])
  add('glue', dict(benchmark_name='cola', label_names=['no', 'yes'], id_key=None), [dict(sentence='s', label=1, idx=4)])
  add('record', {}, [dict(passage='A! \n@highlight\nB?\n@highlight\nC "x"\n@highlight\nd', query='q', entities=['e'], answers=['x', 'y'],
                          idx=dict(passage=1, query=2))])
  add('wsc', {}, [dict(text='a b c d e', span1_text='b c', span1_index=1, span2_text='d', span2_index=3, label=-1, idx=1),
                  dict(text='a b c d e', span1_text='d', span1_index=3, span2_text='a', span2_index=0, label=1, idx=2),
                  dict(text='a b c d e', span1_text='no', span1_index=3, span2_text='d', span2_index=3, label=0, idx=3)])
  wsc = 'The boy continued to whip the pony , and eventually the pony threw him over. John laughed out quite loud. "Good for him," he said. '
  add('wsc_simple', dict(label='t:'), [dict(text=wsc, span1_text='The boy', span2_text='him', span2_index=20, label=0, idx=0),
                                      dict(text='I saw it', span1_text='I', span2_text='it', span2_index=2, label=1, idx=1)])
  add('definite_pronoun_resolution_simple', dict(label='d:'), [
      dict(sentence='The cat saw him. It left him, alone.', pronoun='him', candidates=['x', 'y'], label=0),
      dict(sentence='None here', pronoun='it', candidates=['x', 'y'], label=1)])
  wnli = [('The drain is clogged with hair. It has to be cleaned.', 'The hair has to be cleaned.'),
          ('Steve follows Fred\'s example in everything. He influences him hugely.', 'Steve influences him hugely.'),
          ('The man couldn\'t lift his son because he was so weak.', 'The man was so weak.'),
          ('Jane knocked on Susan\'s door, but she didn\'t answer.', 'Susan didn\'t answer.'),
          ('The cat said that they were late, and their dog barked.', 'The boys\' dog barked.')]
  add('wnli_simple', {}, [dict(sentence1=a, sentence2=b, label=0, idx=i) for i, (a, b) in enumerate(wnli)])
  add('wnli_simple', dict(label='n:'), [dict(sentence1=wnli[0][0], sentence2=wnli[0][1], label=1, idx=0)])
  rank = [dict(a='one {b}', b='two', label=1, w=0.5), dict(a='', b='\\x', label=-1, w=2.0)]
  for mode in ('train', 'eval', 'fewshot_eval'):
    add('rank_classification_formatter', dict(inputs_formats=['{b}: {a}', 'not {a}', 'x'], targets_formats='yes {b}', mode=mode, weight_key='w'),
        [dict(rank[0], a='one')])
  multi = [dict(p='x', label=[0, 2]), dict(p='y', label=[1])]
  add('rank_classification_formatter', dict(inputs_formats='{p}', targets_formats=['a', 'b', 'c'], mode='eval'), multi)
  add('preprocess_tensorflow_examples', dict(inputs_format='{x} of {y}', targets_format='{z}{x}{w}'), [dict(x='1', y='2', z='3')],
      function=seqio.preprocessors.preprocess_tensorflow_examples)
  return cases


def feature_converters():
  cases = []
  def add(name, rows, lengths, **args):
    args = {k: v for k, v in args.items()}
    kwargs = dict(args)
    if 'passthrough_features' in kwargs:
      kwargs['passthrough_features'] = {
          k: fc.FeatureConverter.FeatureSpec(dtype=getattr(tf, v['dtype']), rank=v['rank']) for k, v in kwargs['passthrough_features'].items()}
    record = dict(converter=name, args=args, task_feature_lengths=lengths, inputs=rows)
    try:
      converter = getattr(fc, name)(**kwargs)
      outs = list(converter(ds_of(rows), lengths).as_numpy_iterator())
      record.update(outputs=[plain(x) for x in outs], output_dtypes={k: str(v.dtype) for k, v in outs[0].items()},
                    model_feature_lengths=converter.get_model_feature_lengths(lengths))
    except Exception as e:  # pylint: disable=broad-except
      record['error'] = f'{type(e).__name__}: {str(e).splitlines()[0][:160]}'
    cases.append(record)
  both = [dict(inputs=[5, 6, 1], targets=[7, 1]), dict(inputs=[8, 1], targets=[9, 9, 9, 1]), dict(inputs=[3], targets=[4])]
  lengths = dict(inputs=6, targets=5)
  extra = [dict(x, weights=[0.5, 1.5], ids=[4, 2, 1], table=[[1.0, 2.0], [3.0, 4.0]]) for x in both]
  keep = dict(weights=dict(dtype='float32', rank=1), ids=dict(dtype='int32', rank=1), table=dict(dtype='float32', rank=2))
  more = dict(lengths, weights=3, ids=4, table=3)
  for name in ('EncDecFeatureConverter', 'PrefixLMFeatureConverter', 'DecoderFeatureConverter'):
    add(name, extra, more, pack=False, passthrough_features=keep)
  add('EncDecFeatureConverter', extra, more, pack=True, passthrough_features=keep)
  add('EncDecFeatureConverter', extra, lengths, pack=False, passthrough_features=keep)
  add('EncDecFeatureConverter', extra, more, pack=False)
  add('EncDecFeatureConverter', [dict(both[0], inputs=[5.0, 6.0])], lengths, pack=False)
  add('EncDecFeatureConverter', [dict(both[0], inputs=[[5], [6]])], lengths, pack=False)
  long = [dict(inputs=[5] * 9 + [1], targets=[7, 1])]
  for check in (True, False):
    add('EncDecFeatureConverter', long, lengths, pack=False, apply_length_check=check)
    add('EncDecFeatureConverter', long, lengths, pack=True, apply_length_check=check)
    add('LMFeatureConverter', [dict(targets=[5] * 9)], dict(targets=5), pack=False, apply_length_check=check)
  for pack in (False, True):
    empty = [dict(inputs=[], targets=[4, 1]), dict(inputs=[6, 1], targets=[]), dict(inputs=[], targets=[])]
    add('PrefixLMFeatureConverter', both + empty, lengths, pack=pack)
    add('PrefixLMFeatureConverter', both, lengths, pack=pack, bos_id=3)
    suffixes = [dict(inputs=[5, 6], targets=[7], suffixes=[8, 1]), dict(inputs=[5], targets=[7, 2, 1], suffixes=[]),
                dict(inputs=[], targets=[], suffixes=[]), dict(inputs=[4], targets=[], suffixes=[9])]
    for name in ('PrefixSuffixLMFeatureConverter', 'DecoderFeatureConverter'):
      for only in (True, False):
        add(name, suffixes, dict(inputs=4, targets=5, suffixes=3), pack=pack, loss_on_targets_only=only)
    add('EncoderFeatureConverter', [dict(inputs=[88, 5, 89, 1], targets=[88, 5, 6, 1]), dict(inputs=[88, 89, 1], targets=[88, 7, 1])],
        dict(inputs=8, targets=8), pack=pack, mask_id=89)
    add('LMFeatureConverter', [dict(targets=[5, 1]), dict(targets=[6, 6, 1])], dict(targets=6), pack=pack, bos_id=9)
  add('EncoderFeatureConverter', both, dict(inputs=6, targets=5), pack=False, mask_id=89)
  add('PrePackedEncDecFeatureConverter', both, lengths, pack=True)
  add('PrePackedEncDecFeatureConverter', both, lengths, pack=False)
  return cases


def vocabularies(out):
  folder = os.path.join(out, 'vocab')
  os.makedirs(folder, exist_ok=True)
  pieces = ['[PAD]'] + ['[unused%d]' % i for i in range(1, 4)] + ['[UNK]', '[CLS]', '[SEP]', '[MASK]']
  pieces += list('abcdefghijklmnopqrstuvwxyzABCDEFGH0123456789.,!?\'-()') + ['##' + c for c in 'abcdefghijklmnopqrstuvwxyz0123456789']
  pieces += ['the', 'hello', 'world', '##ing', '##ello', '##orld', 'cafe', '##́', 'é', 'café', 'Привет', '##мир', 'мир', 'п', '##р', '你', '好', '世',
             '##ning', 'lead', 'nai', '##ve', 'naive', 'ss', 'straße', 'strasse', '##aaa', 'aaa', 'don', '“', '”', '—', '…', '1', '##23', 'こ', '##ん', '안', '녕',
             'zero', 'width', 'nul', '##side', 'inside', 'fine', 'ﬁne', '½', '1⁄2', 'tm', '™']
  pieces = list(dict.fromkeys(pieces))
  with open(os.path.join(folder, 'bert.txt'), 'w', encoding='utf-8') as f:
    f.write('\n'.join(pieces) + '\n')
  cases = {
      'bert': dict(kind='BertWordPieceVocabulary', args=dict(start_of_sequence_id=5, end_of_sequence_id=6)),
      'bert_lower': dict(kind='BertWordPieceVocabulary', args=dict(lower_case=True, start_of_sequence_id=5, end_of_sequence_id=6)),
      'bert_nfkc': dict(kind='BertWordPieceVocabulary', args=dict(normalization_form='NFKC', start_of_sequence_id=5, end_of_sequence_id=6)),
      'bert_space': dict(kind='BertWordPieceVocabulary', args=dict(keep_whitespace=True, start_of_sequence_id=5, end_of_sequence_id=6)),
      'bert_unknown': dict(kind='BertWordPieceVocabulary', args=dict(split_unknown_characters=True, max_bytes_per_word=12, start_of_sequence_id=5,
                                                                      end_of_sequence_id=6)),
      'bert_chars': dict(kind='BertWordPieceVocabulary', args=dict(max_chars_per_token=2, start_of_sequence_id=5, end_of_sequence_id=6)),
      'bert_unused': dict(kind='BertWordPieceVocabulary', args=dict(preserve_unused_token=True, start_of_sequence_id=5, end_of_sequence_id=6)),
      'unigram': dict(kind='UnigramVocabulary', args=dict(unigrams=['this', 'that', 'is', 'not', 'the', 'this is', ''])),
      'unigram_split': dict(kind='UnigramVocabulary', args=dict(unigrams=['this', 'that', 'is', 'not', 'the', 'this is', ''], split_on_space=True)),
      'codepoints': dict(kind='FullCodepointVocabulary', args={}),
      'partial': dict(kind='PartialCodepointVocabulary', args=dict(codepoints=[ord(c) for c in 'abcdefg hé你🙂a'])),
      'partial_extra': dict(kind='PartialCodepointVocabulary', args=dict(codepoints=[ord(c) for c in 'abc '], extra_ids=7)),
  }
  # Normalisers of SentencePiece models, changed: models of gen_seqio.py.
  plain_text = dict(add_dummy_prefix=False, remove_extra_whitespaces=False)
  for name, model, extra_ids, overrides in (
      ('no_prefix', 'unigram_bytefallback', 10, dict(add_dummy_prefix=False)),
      ('all_spaces', 'unigram_bytefallback', 0, dict(remove_extra_whitespaces=False)),
      ('plain_text', 'bpe_nofallback', 10, plain_text),
      ('not_escaped', 'unigram_bytefallback', 0, dict(escape_whitespaces=False)),
      ('no_charsmap', 'unigram_bytefallback', 0, dict(name='identity', precompiled_charsmap='')),
      ('as_others', 'bpe_bytefallback_keepspace', 0, dict(add_dummy_prefix=True, remove_extra_whitespaces=True))):
    cases['override_' + name] = dict(kind='SentencePieceVocabulary', model=f'../../vocab/{model}.model',
                                     args=dict(extra_ids=extra_ids, normalizer_spec_overrides=overrides))
  texts = textgen.UNICODE + ['this', 'this is', 'this is not that', 'the  the', 'abc hé', 'Hello, World!', '[unused1] [UNK] [MASK]x [CLS]', 'unaffable', 'a-b(c)',
                             'Thezing 123', 'hello[unused2]', '\ue004\ue005x']
  for name, case in cases.items():
    args = dict(case['args'])
    if case['kind'] == 'BertWordPieceVocabulary':
      case['model'] = 'bert.txt'
      args['vocab_lookup_table'] = os.path.join(folder, 'bert.txt')
    if case['kind'] == 'SentencePieceVocabulary':
      args['sentencepiece_model_file'] = os.path.join(folder, case['model'])
      fields = args['normalizer_spec_overrides']
      args['normalizer_spec_overrides'] = sentencepiece_model_pb2.NormalizerSpec(
          **{k: v.encode() if k == 'precompiled_charsmap' else v for k, v in fields.items()})
    vocabulary = getattr(seqio.vocabularies, case['kind'])(**args)
    number = lambda x: None if x is None else int(x)
    case.update(vocab_size=int(vocabulary.vocab_size), base_vocab_size=int(vocabulary._base_vocab_size), pad_id=number(vocabulary.pad_id),
                eos_id=number(vocabulary.eos_id), unk_id=number(vocabulary.unk_id), extra_ids=int(vocabulary.extra_ids))
    rows, decodes = [], []
    for text in texts:
      try:
        if case['kind'] == 'BertWordPieceVocabulary':  # its encode() gives a row for each word, padded: here they are one after the other
          ids = [int(i) for i in vocabulary.tokenizer.tokenize([text]).merge_dims(1, 2)[0]]
        else:
          ids = [int(i) for i in vocabulary.encode(text)]
        rows.append(dict(text=text, ids=ids, decoded=vocabulary.decode(ids)))
      except Exception as e:  # pylint: disable=broad-except
        rows.append(dict(text=text, error=str(e).splitlines()[0][:100]))
    r = np.random.default_rng(5)
    for n in range(24):
      ids = r.integers(0, min(int(vocabulary.vocab_size), 400) + 3, n % 9 + 1).tolist()
      if n % 3 == 0 and vocabulary.eos_id is not None:
        ids.insert(n % len(ids), int(vocabulary.eos_id))
      try:
        decodes.append(dict(ids=ids, decoded=vocabulary.decode(ids)))
      except Exception as e:  # pylint: disable=broad-except
        decodes.append(dict(ids=ids, error=type(e).__name__))
    save(os.path.join(folder, name + '.jsonl'), rows)
    save(os.path.join(folder, name + '.decode.jsonl'), decodes)
  with open(os.path.join(folder, 'vocabs.json'), 'w', encoding='utf-8') as f:
    json.dump(cases, f, ensure_ascii=False, indent=1)


def t5_registry():
  """The tasks and mixtures that importing t5.data.mixtures registers."""
  import t5.data.mixtures  # pylint: disable=g-import-not-at-top,unused-import
  name = lambda f: getattr(f, '__name__', None) or name(f.func)
  tasks = {}
  for task_name in sorted(seqio.TaskRegistry.names()):
    task = seqio.TaskRegistry.get(task_name)
    tasks[task_name] = dict(
        tfds_name=task.source.tfds_dataset.name, splits=sorted(task.source._splits or []), metrics=len(task.metric_fns),
        preprocessors=len(task.preprocessors), postprocess=task.postprocessor is not None,
        features={k: [f.add_eos, f.required] for k, f in task.output_features.items()})
  mixtures = {}
  for mixture_name in sorted(seqio.MixtureRegistry.names()):
    rates = seqio.MixtureRegistry.get(mixture_name)._task_to_rate
    mixtures[mixture_name] = {k: name(r) if callable(r) else r for k, r in sorted(rates.items())}
  return dict(tasks=tasks, mixtures=mixtures)


def histograms(folder):
  """What seqio's TensorBoardLogger writes for metrics_lib.Histogram: TensorBoard's [buckets][left, right, count]."""
  cases = []
  for values, bins in (([0.5, 1.5, 1.5, -2.0, 7.25], 4), (list(np.random.default_rng(3).normal(size=40)), None), ([3.0, 3.0], 3), ([], 2), ([1, 2, 3, 4], 1)):
    with tempfile.TemporaryDirectory(dir=folder) as logs:
      seqio.TensorBoardLogger(logs)('t', 3, {'h': seqio.metrics.Histogram(np.asarray(values, np.float64), bins)}, None, None, None)
      for record in tf.data.TFRecordDataset(tf.io.gfile.glob(os.path.join(logs, 't', '*'))):
        for value in tf.compat.v1.Event.FromString(record.numpy()).summary.value:
          assert value.tag == 'eval/h' and value.metadata.plugin_data.plugin_name == 'histograms'
          cases.append(dict(values=[float(v) for v in values], bins=bins, rows=tf.make_ndarray(value.tensor).tolist()))
  return cases


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument('--out', required=True)
  out = os.path.join(parser.parse_args().out, 'more')
  save(os.path.join(out, 'text_preprocessors.jsonl'), text_preprocessors())
  save(os.path.join(out, 'feature_converters.jsonl'), feature_converters())
  vocabularies(out)
  save(os.path.join(out, 'histograms.jsonl'), histograms(out))
  with open(os.path.join(out, 't5_registry.json'), 'w', encoding='utf-8') as f:
    json.dump(t5_registry(), f, indent=1)


if __name__ == '__main__':
  main()
