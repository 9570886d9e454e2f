"""ocdbt/: stores, arrays and checkpoints as TensorStore and Orbax write them, of the shapes that small checkpoints do not have.

Reference: tensorstore 0.1.63, orbax-checkpoint 0.5.23, tensorflow 2.16.2. Run with
$ORACLE_ENVS/t/bin/python gen_ocdbt.py --out DIR/ocdbt --seed N.
  stores/<name>/, stores/<name>.safetensors   an OCDBT store and its keys' values, as bytes
  arrays/, arrays.safetensors                 a store of zarr arrays: chunks, types, compressors, fill values
  orbax/<name>/checkpoint_<n>/, orbax/<name>.safetensors  Orbax of four devices: one store, two processes' stores merged, a folder an array
  tf/<name>.*, tf/<name>.safetensors          a TensorFlow checkpoint with variables in several parts, by our names
"""
import argparse
import os
import pathlib
import shutil
os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=4'
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import tensorflow as tf
import tensorstore as ts
from orbax.checkpoint import type_handlers
from safetensors.numpy import save_file


def spec(folder, config=None, **more):
  return {'driver': 'ocdbt', 'base': f'file://{folder}/', 'config': config or {}, **more}


def save(path, tensors):
  save_file({k: np.ascontiguousarray(v).reshape(np.shape(v)) for k, v in tensors.items()}, path)


def as_bytes(values):
  return {k: np.frombuffer(v, np.uint8) for k, v in values.items()}


def stores(out, rng):
  """Key-value stores: trees of several levels and versions, with and without compression."""
  kinds = {
      # A few bytes a node and two versions a node of versions: four levels of keys, five of versions.
      'levels': {'max_decoded_node_bytes': 300, 'max_inline_value_bytes': 12, 'version_tree_arity_log2': 1, 'compression': {'id': 'zstd', 'level': 3}},
      'uncompressed': {'max_decoded_node_bytes': 400, 'max_inline_value_bytes': 0, 'compression': None},
      'inline': {'max_inline_value_bytes': 1024},
      'numbered': {'manifest_kind': 'numbered', 'max_decoded_node_bytes': 300, 'version_tree_arity_log2': 1},
      'empty': {},
  }
  for name, config in kinds.items():
    path = out / 'stores' / name
    store = ts.KvStore.open(spec(path, config)).result()
    want = {}
    for generation in range(1 if name == 'inline' else 7):
      with ts.Transaction(atomic=True) as txn:
        within = store.with_transaction(txn)
        for _ in range(20):
          key = 'state.' + '.'.join(['encoder', 'decoder', 'a'][i] for i in rng.integers(0, 3, rng.integers(1, 4))) + f'/{rng.integers(0, 40)}'
          if key in want and rng.random() < 0.5:
            del want[key]
            within.write(key, None)  # removes it
          else:
            want[key] = rng.bytes(int(rng.choice([0, 1, 9, 12, 13, 60])))
            within.write(key, want[key])
    if name == 'empty':
      with ts.Transaction(atomic=True) as txn:
        store.with_transaction(txn).delete_range(ts.KvStore.KeyRange())
      want = {}
    save(out / 'stores' / f'{name}.safetensors', as_bytes(want) or {'none': np.zeros(0, np.uint8)})
    got = {k.decode(): store.read(k).result().value for k in store.list().result()}
    assert got == want, name


def arrays(out, rng):
  """Arrays of every type and layout that our reader knows."""
  zstd, gzip = {'id': 'zstd', 'level': 1}, {'id': 'gzip', 'level': 6}
  kinds = {
      'f32.whole': ('<f4', [6, 10], [6, 10], zstd, {}),
      'f32.edges': ('<f4', [7, 11], [3, 4], gzip, {}),
      'f32.columns': ('<f4', [5, 6, 3], [2, 4, 2], zstd, {'order': 'F'}),
      'f32.slashes': ('<f4', [4, 4], [2, 2], None, {'dimension_separator': '/'}),
      'f32.fill': ('<f4', [6, 4], [2, 2], zstd, {'fill_value': 1.5}),
      'f32.infinite': ('<f4', [4], [2], zstd, {'fill_value': '-Infinity'}),
      'f32.zeros': ('<f4', [6, 4], [2, 2], zstd, {}),
      'f32.zlib': ('<f4', [9], [4], {'id': 'zlib', 'level': 1}, {}),
      'f32.scalar': ('<f4', [], [], zstd, {}),
      'f32.nothing': ('<f4', [0, 4], [1, 4], zstd, {}),
      'bf16.edges': ('bfloat16', [5, 5], [2, 3], zstd, {}),
      'f16': ('<f2', [5], [5], zstd, {}),
      'f64': ('<f8', [5], [2], gzip, {}),
      'i32': ('<i4', [], [], zstd, {}),
      'i64': ('<i8', [3], [3], zstd, {}),
      'u32': ('<u4', [3], [3], zstd, {}),
      'u8': ('|u1', [9], [4], zstd, {}),
      'i8': ('|i1', [9], [4], zstd, {}),
      'bool': ('|b1', [9], [4], zstd, {}),
  }
  values, context = {}, ts.Context()
  for name, (dtype, shape, chunks, compressor, more) in kinds.items():
    path = ('target.' if name.startswith(('f', 'b')) else 'state.') + name
    array = ts.open({'driver': 'zarr', 'kvstore': f'memory://{path}/', 'create': True,
                     'metadata': {'dtype': dtype, 'shape': shape, 'chunks': chunks, 'compressor': compressor, **more}}, context=context).result()
    value = rng.standard_normal(shape).astype(np.float32) * 100
    if name in ('f32.fill', 'f32.zeros', 'f32.infinite'):  # some chunks are not stored, or none
      value = np.full(shape, array.fill_value if more else 0, np.float32)
    if name == 'f32.fill':
      value[2:4, 1] = 7
    value = np.asarray(value).astype(array.dtype.numpy_dtype)
    array.write(value).result()
    values[path.replace('.', '/')] = array.read().result()
    assert values[path.replace('.', '/')].tobytes() == value.tobytes()
  made = ts.KvStore.open('memory://', context=context).result()
  with ts.Transaction(atomic=True) as commit:
    store = ts.KvStore.open(spec(out / 'arrays')).result().with_transaction(commit)
    for key in made.list().result():
      store.write(key, made.read(key).result().value)
  save(out / 'arrays.safetensors', values)


def state(rng):
  mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ('data', 'model'))
  def put(shape, dtype, *axes):
    value = jnp.asarray(rng.standard_normal(shape), dtype)
    return jax.device_put(value, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes)))
  tree = {
      'state': {'step': np.asarray(17, np.int32),
                'param_states': {'token_embedder': {'embedding': {'v_row': put([8], jnp.float32, 'data'), 'v_col': put([6], jnp.float32)}}}},
      'target': {'token_embedder': {'embedding': put([8, 6], jnp.float32, 'data', 'model')},
                 'decoder': {'logits_dense': {'kernel': put([6, 8], jnp.bfloat16, None, 'model')}}},
  }
  return tree


def flat(tree, prefix=''):
  if not isinstance(tree, dict):
    return {prefix[:-1]: np.asarray(tree)}
  return {k: v for key, sub in tree.items() for k, v in flat(sub, f'{prefix}{key}/').items()}


def orbax(out, rng):
  for name, ocdbt in (('store', True), ('folders', False)):
    tree = state(rng)
    folder = out / 'orbax' / name / 'checkpoint_17' / 'state'
    folder.parent.mkdir(parents=True)
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt)).save(folder, tree)
    save(out / 'orbax' / f'{name}.safetensors', flat(tree))
  # As two processes of a job do: each writes its arrays' chunks into a store of its own, one of them merges.
  folder = out / 'orbax' / 'processes' / 'checkpoint_17' / 'state'
  folder.mkdir(parents=True)
  values = {k: v for k, v in flat(state(rng)).items()}
  for name, value in values.items():
    chunks = [max(1, n // 2) for n in value.shape]
    for process in (0, 1):
      store = spec(folder / f'ocdbt.process_{process}', path=name.replace('/', '.') + '/')
      array = ts.open({'driver': 'zarr', 'kvstore': store, 'create': True, 'open': True,
                       'metadata': {'dtype': 'bfloat16' if value.dtype.name == 'bfloat16' else value.dtype.str, 'shape': value.shape,
                                    'chunks': chunks, 'compressor': {'id': 'zstd', 'level': 1}}}).result()
      if not value.shape:
        if process == 0:
          array.write(value).result()
      else:
        half = slice(0, chunks[0]) if process == 0 else slice(chunks[0], None)
        array[half].write(value[half]).result()
  type_handlers.merge_ocdbt_per_process_files(ocp.path.step.epath.Path(folder), type_handlers.get_ts_context(use_ocdbt=True))
  save(out / 'orbax' / 'processes.safetensors', values)


def tensorflow(out, rng):
  folder = out / 'tf'
  folder.mkdir(parents=True)
  values = {}
  graph = tf.Graph()
  with graph.as_default(), tf.compat.v1.Session(graph=graph) as session:
    def variable(theirs, ours, shape, parts, axis, dtype=tf.float32):
      value = (rng.standard_normal(shape) if dtype.is_floating else np.arange(shape[0]) // 100).astype(dtype.as_numpy_dtype)
      partitioner = tf.compat.v1.fixed_size_partitioner(parts, axis) if parts > 1 else None
      scope, name = theirs.rsplit('/', 1)
      with tf.compat.v1.variable_scope(scope, partitioner=partitioner, reuse=tf.compat.v1.AUTO_REUSE):
        tf.compat.v1.get_variable(name, shape=shape, dtype=dtype, use_resource=False, initializer=lambda shape, dtype, partition_info=None: tf.constant(
            value if partition_info is None else value[tuple(slice(o, o + s) for o, s in zip(partition_info.var_offset, shape))], dtype))
      values[ours] = value
    variable('shared/embedding', 'target/token_embedder/embedding', [11, 6], 3, 0)
    variable('decoder/logits/kernel', 'target/decoder/logits_dense/kernel', [6, 130], 2, 1)
    variable('decoder/logits/kernel_slot_vr', 'state/param_states/decoder/logits_dense/kernel/v_row', [130], 1, 0)
    variable('encoder/final_layer_norm/scale', 'target/encoder/encoder_norm/scale', [6], 1, 0, tf.bfloat16)
    variable('encoder/block_000/layer_001/DenseReluDense/wi/kernel', 'target/encoder/layers_0/mlp/wi/kernel', [6, 200], 4, 1)
    # Numbers of three bytes in the keys of slices.
    variable('encoder/block_000/layer_000/layer_norm/scale', 'target/encoder/layers_0/pre_attention_layer_norm/scale', [20000], 2, 0, tf.uint8)
    # Of Mesh-TF's Adafactor with momentum, whose second moment is not factored here.
    variable('decoder/logits/kernel_slot_m', 'state/param_states/decoder/logits_dense/kernel/m', [6, 130], 2, 1)
    variable('encoder/final_layer_norm/scale_slot_m', 'state/param_states/encoder/encoder_norm/scale/m', [6], 1, 0)
    variable('encoder/final_layer_norm/scale_slot_v', 'state/param_states/encoder/encoder_norm/scale/v', [6], 1, 0)
    step = tf.Variable(np.int64(1234), name='global_step')
    note = tf.Variable('texts are left out', name='note')
    session.run(tf.compat.v1.global_variables_initializer())
    saver = tf.compat.v1.train.Saver(sharded=True)
    saver.save(session, str(folder / 'parts.ckpt'), write_meta_graph=False)
    values['state/step'] = np.asarray(1234, np.int32)
  (folder / 'checkpoint').unlink()
  reader = tf.train.load_checkpoint(str(folder / 'parts.ckpt'))
  assert reader.get_tensor('shared/embedding').tobytes() == values['target/token_embedder/embedding'].tobytes()
  save(folder / 'parts.safetensors', values)


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument('--out', required=True)
  parser.add_argument('--seed', type=int, default=0)
  ns = parser.parse_args()
  out = pathlib.Path(ns.out).resolve()
  if out.exists():
    shutil.rmtree(out)
  (out / 'stores').mkdir(parents=True)
  for i, make in enumerate((stores, arrays, orbax, tensorflow)):
    make(out, np.random.default_rng(ns.seed * 10 + i))


if __name__ == '__main__':
  main()
