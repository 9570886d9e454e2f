"""Quintet in Python: T5-family models by the `quintet` program, through libquintet.so.

    import quintet
    model = quintet.Model("/tmp/numbers")
    model.generate(["words: 1234"])          # ["one thousand two hundred thirty-four"]
    model.score(["words: 7"], ["seven"])     # float32 [1], log probabilities
    model.embed(["words: 7"])                # float32 [1, width]
    for piece in model.stream("words: 1234"): print(piece, end="")
    for batch in quintet.data.batches("number_words", epochs=None): batch["encoder_input_tokens"]
    quintet.Trainer(model_dir="/tmp/run", gin_file="quintet/quickstart.gin", callback=print).run()

It needs NumPy and the library, looked for in QUINTET_LIBRARY, beside the program (QUINTET_PROGRAM, or along PATH) and in
the build folder of the source tree. docs/usage/python.md is its manual.
"""

from . import data
from ._library import library as _loaded
from .errors import DataError, DiskError, EnvironmentFault, NonFiniteError, PeerError, QuintetError, UsageError
from .model import Answer, Model
from .trainer import Trainer

__all__ = ["Answer", "DataError", "DiskError", "EnvironmentFault", "Model", "NonFiniteError", "PeerError", "QuintetError",
           "Trainer", "UsageError", "data", "version"]


def version() -> str:
    """The version of the library. Raises EnvironmentFault if there is none."""
    return str(_loaded().quintet_version().decode())
