#!/usr/bin/env python3
"""How well `quintet plan` foretells training steps on this machine: planned against measured seconds of every layout.

    bench/plan_compare.py [--quintet build/quintet] [--ranks 2] [--model t5_1_1_tiny] [--batch 8] [--inputs 256] [--targets 64]
                          [--microbatches 1,2] [--repeat 3] [--launcher 'chrt -f 20']

`quintet bench cluster` measures ops and collectives, of small models other than this one; `quintet plan` reads its file; `quintet
bench layouts` measures the steps. All this --repeat times in turn, as a machine that others share is not always as fast; medians count.
One JSON object a layout on stdout, a table on stderr. On a machine where others work, --launcher keeps them away from the ranks.
"""
import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
  ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  ap.add_argument('--quintet', default=ROOT / 'build' / 'quintet')
  ap.add_argument('--ranks', type=int, default=2)
  ap.add_argument('--model', default='t5_1_1_tiny')
  ap.add_argument('--batch', type=int, default=8)
  ap.add_argument('--inputs', type=int, default=256)
  ap.add_argument('--targets', type=int, default=64)
  ap.add_argument('--microbatches', default='1,2')
  ap.add_argument('--repeat', type=int, default=3)
  ap.add_argument('--launcher', default='')
  ns = ap.parse_args()
  sizes = [f'--{name}={getattr(ns, name)}' for name in ('model', 'batch', 'inputs', 'targets')]

  def run(*args):
    command = [*shlex.split(ns.launcher), str(ns.quintet), *args]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS=str(ns.ranks))).stdout

  def seconds(*args):
    rows = map(json.loads, run(*args).splitlines())
    return {row['layout']: row['seconds_per_step'] for row in rows if 'seconds_per_step' in row}

  planned, measured = ({parts: [] for parts in ns.microbatches.split(',')} for _ in range(2))
  with tempfile.TemporaryDirectory() as folder:
    cluster = os.path.join(folder, 'cluster.json')
    for _ in range(ns.repeat):
      run('bench', 'cluster', f'--ranks={ns.ranks}', f'--output={cluster}')
      for parts in planned:
        step = [*sizes, f'--microbatches={parts}']
        planned[parts].append(seconds('plan', f'--cluster={cluster}', *step))
        measured[parts].append(seconds('bench', 'layouts', f'--ranks={ns.ranks}', '--steps=8', *step))
  for parts in planned:
    for layout in planned[parts][0]:
      plan, real = (statistics.median(times[layout] for times in of[parts]) for of in (planned, measured))
      print(json.dumps({'bench': 'plan', 'model': ns.model, 'layout': layout, 'microbatches': int(parts), 'planned_seconds': plan,
                        'measured_seconds': real, 'error': plan / real - 1}))
      print(f'{layout:14s} {parts:>2s} microbatches: planned {plan * 1e3:9.2f} ms, measured {real * 1e3:9.2f} ms, {plan / real - 1:+.1%}',
            file=sys.stderr)


if __name__ == '__main__':
  main()
