"""fp8/: delayed scaling as two programs do it on a CPU: Transformer Engine's quantizer for JAX (its own code, of a checkout), and flax's dense layer in FP8.

Reference: TransformerEngine@d0067d0, flax 0.12.8, jax 0.10.2. Run: gen_fp8_references.py --transformer_engine CHECKOUT --out tests/fixtures/fp8

transformer_engine.safetensors  as scaling.safetensors, by DelayedScaleQuantizer.update; and of max_4_0 what quantize() makes of x [steps, operands, n]: bytes [steps, operands, n]
flax.safetensors                a layer's steps by Fp8DirectDotGeneralOp: x [steps, rows, k], w [steps, k, n], dy [steps, rows, n] -> y, dx, dw; scale [steps, operands]: what
                                numbers are divided by in this step; history [steps, operands, length] after it; tolerance [3]: of scales, relative; of y, dx and dw, of
                                their size; of these where tensor cores multiply, which add up in fewer bits than float32
"""
import argparse
import pathlib
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
from flax.linen import fp8_ops
from safetensors.numpy import save_file

COMMIT = "d0067d0da6cb01811b8072a7d304f0e00344ce2b"
FORMATS = [jnp.float8_e4m3fn, jnp.float8_e4m3fn, jnp.float8_e5m2]
RECIPES = [("max", 4, 0), ("max", 1, 0), ("max", 300, 2), ("most_recent", 4, 0), ("most_recent", 1, 1)]


class Anything(type):
  def __getattr__(cls, name):
    if name.startswith("__"):
      raise AttributeError(name)


class Stand(types.ModuleType):
  """A module of Transformer Engine that the quantizer imports and delayed scaling does not use: any name is a class of any names."""

  def __getattr__(self, name):
    if name.startswith("__"):
      raise AttributeError(name)
    setattr(self, name, Anything(name, (), {}))
    return getattr(self, name)


def quantizer_module(checkout):
  """transformer_engine/jax/quantize/quantizer.py, whose package needs a GPU's libraries."""
  root = "transformer_engine"
  for name in ("", ".common", ".jax", ".jax.sharding", ".jax.quantize", *(f".jax.quantize.{part}" for part in "scaling_modes misc hadamard tensor helper device_utils".split())):
    sys.modules[root + name] = Stand(root + name)
  helper = sys.modules[root + ".jax.quantize.helper"]
  helper.AmaxComputeAlgo = types.SimpleNamespace(MAX="max", MOST_RECENT="most_recent")
  tensor = sys.modules[root + ".jax.quantize.tensor"]
  tensor.NoScaleTensor = types.SimpleNamespace
  tensor.ScaledTensorFactory = types.SimpleNamespace(create_1x=lambda **made: made["data"])
  path = "transformer_engine/jax/quantize/quantizer.py"
  source = subprocess.run(["git", "-C", checkout, "show", f"{COMMIT}:{path}"], check=True, capture_output=True, text=True).stdout
  source = source.partition("@register_pytree_node_class\n@dataclass\nclass BlockScaleQuantizer")[0]  # what follows sets up what is not here
  module = types.ModuleType(root + ".jax.quantize.quantizer")
  module.__package__ = root + ".jax.quantize"
  sys.modules[module.__name__] = module
  exec(compile(source, path, "exec"), module.__dict__)
  return module


def transformer_engine(checkout):
  module = quantizer_module(checkout)
  rng = np.random.default_rng(2)
  amax = np.exp(rng.normal(0, 2, (12, 3))).astype(np.float32)
  amax[2] = 0
  amax[5, 0], amax[8:, 2] = np.inf, 0
  x = rng.standard_normal((12, 3, 200)).astype(np.float32)
  x *= amax[:, :, None] / np.abs(x).max(axis=2, keepdims=True)
  x[~np.isfinite(x)] = 0  # where an amax is not finite
  amax = np.where(np.isfinite(amax), np.abs(x).max(axis=2), amax)
  arrays = {"amax": amax, "x": x, "bytes": np.zeros(x.shape, np.uint8)}
  for algorithm, length, margin in RECIPES:
    case = f"{algorithm}_{length}_{margin}"
    scale, history = np.zeros((12, 3), np.float32), np.zeros((12, 3, length), np.float32)
    for operand, dtype in enumerate(FORMATS):
      quantizer = module.DelayedScaleQuantizer(
          q_dtype=dtype, scaling_mode=None, q_layout=None, data_layout="NT", margin=float(margin), amax_compute_algo=algorithm, amax_history=jnp.zeros((length,), jnp.float32))
      for step in range(12):
        given = types.SimpleNamespace(data=jnp.asarray(x[step, operand]), amax=jnp.asarray(amax[step, operand]).reshape(1))
        made = quantizer._quantize_func(given)  # updates
        if case == "max_4_0":
          arrays["bytes"][step, operand] = np.asarray(made).view(np.uint8)
        scale[step, operand], history[step, operand] = quantizer.scale[0], quantizer.amax_history
    arrays[case + "/scale"], arrays[case + "/history"] = scale, history
  return arrays


def flax():
  steps, rows, k, n, length = 8, 24, 32, 16, 3
  rng = np.random.default_rng(3)
  size = 2.0 ** rng.integers(-4, 5, (3, steps, 1, 1))  # of each operand, step by step, so that histories matter and numbers are clipped
  x, w, dy = (rng.standard_normal((steps, *shape)).astype(np.float32) * of.astype(np.float32) for shape, of in zip([(rows, k), (k, n), (rows, n)], size))
  op = fp8_ops.Fp8DirectDotGeneralOp(amax_history_length=length)
  names = ("input", "kernel", "output_grad")
  dims = (((1,), (0,)), ((), ()))
  state = op.init(jax.random.key(0), x[0], w[0], dims)
  made = {name: [] for name in ("y", "dx", "dw", "scale", "history")}
  for step in range(steps):
    y, vjp = jax.vjp(lambda state, a, b: op.apply(state, a, b, dims), state, jnp.asarray(x[step]), jnp.asarray(w[step]))
    state, dx, dw = vjp(jnp.asarray(dy[step]))
    kept = state["_overwrite_with_gradient"]
    made["y"].append(y), made["dx"].append(dx), made["dw"].append(dw)
    made["scale"].append([kept[name + "_scale"][0] for name in names])
    made["history"].append([kept[name + "_amax_history"] for name in names])
  # Scales: 1 / (1 / s). Results: sums in another order, and numbers between two bytes that x / (1 / s) and x * s round apart.
  return {"x": x, "w": w, "dy": dy, **{name: np.asarray(all, np.float32) for name, all in made.items()}, "tolerance": np.float32([2.5e-7, 1e-5, 2e-3])}


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("--out", type=pathlib.Path, required=True)
  parser.add_argument("--transformer_engine", required=True)
  options = parser.parse_args()
  options.out.mkdir(parents=True, exist_ok=True)
  save_file(transformer_engine(options.transformer_engine), options.out / "transformer_engine.safetensors")
  save_file(flax(), options.out / "flax.safetensors")


if __name__ == "__main__":
  main()
