"""fp8/: casts to E4M3 and E5M2 as ml_dtypes makes them, and delayed scaling by Transformer Engine's documented formula.

Reference: ml_dtypes 0.6.0, numpy 2.4.6. Run: gen_fp8.py --out tests/fixtures/fp8

casts.safetensors    x [n] float32: every byte's value, the middles between neighbours, their neighbours among floats, numbers beyond the
                     largest, and normal numbers of many sizes; e4m3, e5m2 [n] uint8: x clipped to the largest number, then cast
scaling.safetensors  amax [steps, operands], and of each case <algorithm>_<length>_<margin>: scale [steps, operands], history [steps, operands, length],
                     both after that step. Operands: E4M3, E4M3, E5M2. Scale: (largest of the format / amax) / 2^margin where amax, the largest of
                     the history or the most recent, is finite and above 0, else as before, and at most the largest float32
"""
import argparse
import pathlib

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

FORMATS = {"e4m3": (ml_dtypes.float8_e4m3fn, 448.0), "e5m2": (ml_dtypes.float8_e5m2, 57344.0)}


def numbers():
  rng = np.random.default_rng(0)
  parts = [np.float32([0.0, -0.0, 1e30, -1e30, 449, 464, 465, 480, 57345, 61440, 65504, 1e-45, 1e-12])]
  for dtype, largest in FORMATS.values():
    values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    values = np.unique(values[np.isfinite(values)])
    middles = (values[1:] + values[:-1]) / 2
    parts += [values, middles, np.nextafter(middles, np.float32(np.inf)), np.nextafter(middles, np.float32(-np.inf))]
  parts.append((rng.standard_normal(2000) * 2.0 ** rng.integers(-24, 20, 2000)).astype(np.float32))
  return np.concatenate(parts).astype(np.float32)


def scaling(amax, algorithm, length, margin):
  largest = np.float32([448, 448, 57344]) * np.float32(2.0 ** -margin)
  scale, history = np.ones(3, np.float32), np.zeros((3, length), np.float32)
  scales, histories = [], []
  for newest in amax:
    history[:, 0] = newest
    chosen = np.fmax.reduce(history, axis=1) if algorithm == "max" else newest
    with np.errstate(all="ignore"):
      new = np.minimum(largest / chosen, np.finfo(np.float32).max)
    scale = np.where(np.isfinite(chosen) & (chosen > 0), new, scale).astype(np.float32)
    history = np.roll(history, -1, axis=1)
    history[:, 0] = 0
    scales.append(scale)
    histories.append(history.copy())
  return np.stack(scales), np.stack(histories)


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("--out", type=pathlib.Path, required=True)
  out = parser.parse_args().out
  out.mkdir(parents=True, exist_ok=True)
  x = numbers()
  casts = {name: np.clip(x, -largest, largest).astype(dtype).view(np.uint8) for name, (dtype, largest) in FORMATS.items()}
  save_file({"x": x, **casts}, out / "casts.safetensors")
  rng = np.random.default_rng(1)
  amax = np.exp(rng.normal(0, 2, (12, 3))).astype(np.float32)
  amax[2] = 0
  amax[5, 0], amax[6, 1], amax[7, 2] = np.inf, np.nan, 1e-38
  amax[8:, 2] = 0
  arrays = {"amax": amax}
  for algorithm, length, margin in [("max", 4, 0), ("max", 1, 0), ("max", 300, 2), ("most_recent", 4, 0), ("most_recent", 1, 1)]:
    case = f"{algorithm}_{length}_{margin}"
    arrays[case + "/scale"], arrays[case + "/history"] = scaling(amax, algorithm, length, margin)
  save_file(arrays, out / "scaling.safetensors")


if __name__ == "__main__":
  main()
