"""Quintet as other programs are installed: `cmake --install`, a moved tree, a program outside of ours that adds a model, a
loss and an optimizer, manual pages, completion, the version."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import e2e
from e2e import ROOT, TINY, quintet
from judged import TRAINING_EVALUATOR

BUILD = pathlib.Path(os.environ.get("QUINTET_BUILD", ROOT / "build"))
OUTSIDE = ROOT / "tests" / "install" / "outside"
CLEAN = {name: value for name, value in os.environ.items() if name != "QUINTET_CONFIGS"}


def call(*command, expect=0, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env={**CLEAN, "OMP_NUM_THREADS": "1"},
                          timeout=300 * e2e.PATIENCE, stdin=subprocess.DEVNULL, **options)
    assert done.returncode == expect, f"{command}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


def installed(folder):
    """The prefix, moved after it was installed."""
    call("cmake", "--install", BUILD, "--prefix", folder / "first")
    return (folder / "first").rename(folder / "moved away")


def test_an_installed_tree_can_be_moved(folder):
    prefix = installed(folder)
    program = prefix / "bin" / "quintet"
    gin = prefix / "share" / "quintet" / "configs" / "quintet" / "byte_tiny.gin"
    call(program, "train", *TINY, f"--model_dir={folder}/run", "--gin.TRAIN_STEPS=3", cwd=folder)
    # It reads the files beside it and no others.
    config = ["config", "--gin.DROPOUT_RATE=0.0", "--gin.TRAIN_STEPS=1", "quintet/byte_tiny.gin"]
    gin.write_text(gin.read_text() + "\nWARMUP_STEPS = 77\n")
    assert "WARMUP_STEPS = 77" in call(program, *config, cwd=folder).stdout
    (folder / "own" / "quintet").mkdir(parents=True)
    (folder / "own" / "quintet" / "byte_tiny.gin").write_text(gin.read_text() + "\nWARMUP_STEPS = 78\n")
    CLEAN["QUINTET_CONFIGS"] = str(folder / "own")
    try:
        assert "WARMUP_STEPS = 78" in call(program, *config, cwd=folder).stdout
    finally:
        del CLEAN["QUINTET_CONFIGS"]
    gin.unlink()
    lost = call(program, *config, cwd=folder, expect=2).stderr
    assert "quintet/byte_tiny.gin" in lost and str(prefix / "share" / "quintet" / "configs") in lost, lost


def test_what_is_installed(folder):
    prefix = installed(folder)
    for name in ("bin/quintet", "share/quintet/python/quintet_worker.py", *(f"share/doc/quintet/{name}" for name in ("LICENSE", "CHANGELOG.md")),
                 "share/man/man1/quintet.1", "share/man/man1/quintet-bench-train.1",
                 "share/bash-completion/completions/quintet", "share/zsh/site-functions/_quintet",
                 "include/quintet.h", "share/quintet/python/quintet/model.py", "include/quintet/models/base_model.h", "include/quintet/runtime/op/ops.def"):
        assert (prefix / name).is_file(), name
    unit = (prefix / "lib" / "systemd" / "system" / "quintet-serve.service").read_text()
    assert f"ExecStart={folder}/first/bin/quintet serve " in unit, unit
    shipped = {path.relative_to(ROOT / "models" / "configs") for path in (ROOT / "models" / "configs").rglob("*.gin")}
    found = {path.relative_to(prefix / "share/quintet/configs") for path in prefix.rglob("*.gin")}
    assert shipped == found, shipped ^ found


def test_a_program_in_c_finds_the_library(folder):
    prefix = installed(folder)
    for program in ("cc", "pkg-config"):
        if shutil.which(program) is None:
            e2e.skip(f"needs {program}")
    quintet(*e2e.tiny(folder / "run", 4))
    page = (ROOT / "docs/usage/python.md").read_text()
    (folder / "ask.c").write_text(re.search(r"(#include <quintet.h>.*?)^END", page, re.M | re.S).group(1).replace("/tmp/tour", f"{folder}/run"))
    CLEAN["PKG_CONFIG_PATH"] = str(prefix / "lib" / "pkgconfig")
    flags = shlex.split(call("pkg-config", "--cflags", "--libs", "libquintet").stdout)
    call("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", folder / "ask.c", *flags, f"-Wl,-rpath,{prefix}/lib", "-o", folder / "ask")
    answers = call(folder / "ask", cwd=folder).stdout
    lines = quintet("generate", f"--model_dir={folder}/run", "--format=json", "--temperature=0", "words: 4711", "number: nine").out
    said = [json.loads(line)["prediction"].partition("\0")[0] for line in lines.splitlines()]
    assert answers.split() == "\n".join(said).split() and answers, (answers, said)
    (prefix / "bin" / "quintet").unlink()  # which it starts
    assert "QUINTET_PROGRAM" in call("env", "PATH=/usr/bin", folder / "ask", expect=1).stderr


def mine_bindings():
    """The model of mine.gin that generates, without the run."""
    text = (OUTSIDE / "mine.gin").read_text()
    return "MODEL = @mine.T5Model()\n" + text[text.index("mine.T5Model:"):text.index("train_script.train.infer")]


def test_a_program_outside_brings_its_own_model_loss_and_optimizer(folder):
    prefix = installed(folder)
    configured = ["cmake", "-S", OUTSIDE, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release"]
    ccache = shutil.which("ccache")
    call(*configured, *([f"-DCMAKE_CXX_COMPILER_LAUNCHER={ccache}"] if ccache else []))
    call("cmake", "--build", folder / "build")
    mine = folder / "build" / "mine"
    shapes = [flag for flag in TINY if "T5Config" in flag or flag.split("=")[0] in ("--gin.WARMUP_STEPS", "--gin.BATCH_SIZE")]

    def trained(name, *flags):
        call(mine, "train", f"--gin_file={OUTSIDE / 'mine.gin'}", *shapes, "--gin.TRAIN_STEPS=3", f"--model_dir={folder}/{name}",
             "--gin.train_script.train.eval_steps=1", *flags, cwd=folder)
        return next(record["loss_per_nonpadding_target_token"] for record in reversed(e2e.metrics(folder / name))
                    if record["run"] == "training_eval/number_to_words" and record["step"] == 3)

    one = trained("one")
    assert trained("unmoved", "--gin.mine.SignSgd.learning_rate=0.0") > 1.05 * one  # its optimizer trains
    assert one > 1.05 * trained("even", "--gin.mine.FirstTokensLoss.weight=1.0")  # its loss is what is computed
    assert "attention/query/kernel" in call(mine, "inspect", folder / "one" / "checkpoint_3").stdout  # its network
    refused = call(mine, "generate", f"--model_dir={folder}/one", "words: 7", expect=2).stderr
    assert "a network of its own" in refused, refused
    loss = trained("t5", "--gin.MODEL=@mine.T5Model()")
    # Evaluated by itself it has that loss, too.
    (folder / "eval.gin").write_text(TRAINING_EVALUATOR.format(run=folder / "t5", out=folder / "out") +
                                     f"import mine\nfrom t5x.examples.t5 import network\n{mine_bindings()}")
    printed = call(mine, "eval", f"--gin_file={folder / 'eval.gin'}", *(flag for flag in shapes if "T5Config" in flag),
                   "--gin.utils.get_training_eval_datasets.eval_steps=1")
    again = next(line for line in map(json.loads, printed.stdout.splitlines()) if line.get("training_eval") == "number_to_words")
    assert abs(again["loss_per_nonpadding_target_token"] - loss) < 1e-5 * loss, (again, loss)
    call(mine, "generate", f"--model_dir={folder}/t5", "words: 7")
    stranger = quintet("generate", f"--model_dir={folder}/t5", "words: 7", expect=2).err
    assert "mine" in stranger, stranger
    # pkg-config links what CMake links.
    if shutil.which("pkg-config"):
        CLEAN["PKG_CONFIG_PATH"] = str(prefix / "lib" / "pkgconfig")
        [object_file] = (folder / "build").rglob("program.cpp.o")
        call("c++", object_file, *shlex.split(call("pkg-config", "--libs", "quintet").stdout), "-o", folder / "linked")
        flags = shlex.split(call("pkg-config", "--cflags", "quintet").stdout)
        assert f"-I{prefix}/lib/pkgconfig/../../include/quintet" in flags, flags
        assert f'-DQUINTET_INSTALLED_CONFIGS="{prefix}/lib/pkgconfig/../../share/quintet/configs"' in flags, flags
        call(folder / "linked", "config", f"--gin_file={OUTSIDE / 'mine.gin'}", f"--gin.MODEL_DIR='{folder}/x'")


def commands():
    """Every verb, or verb and part, with the flags of its --help."""
    found = {}
    for verb in re.findall(r"^  (\w+) ", quintet("--help").out.partition("Examples:")[0], re.M):
        parts = [""]
        if verb in ("bench", "tokenizer"):
            parts = re.findall(r"^  (\w+) ", quintet(verb, "--help").out.partition("Examples:")[0], re.M)
        for part in parts:
            words = [verb, part] if part else [verb]
            lines = re.findall(r"^  (-\S+)", quintet(*words, "--help").out.partition("Examples:")[0], re.M)
            found[" ".join(words)] = {flag for line in lines for flag in line.split(",") if flag.startswith("--")}
    return found


def completed(script, *words):
    """What bash offers for the last word."""
    done = call("bash", "-c", f"compopt() {{ :; }}; source {script}; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _quintet; "
                "printf '%s\\n' \"${COMPREPLY[@]}\"", "bash", script, *words)
    return done.stdout.split()


def test_completion_offers_what_help_shows(folder):
    script = folder / "quintet.bash"
    script.write_text(quintet("completion", "bash").out)
    for name, flags in commands().items():
        offered = completed(script, "quintet", *name.split(), "--")
        assert {flag.rstrip("=") for flag in offered} == flags and len(offered) == len(set(offered)), (name, offered, flags)
    assert completed(script, "quintet", "tok") == ["tokenizer"]
    assert set(completed(script, "quintet", "bench", "")) >= {"train", "layouts", "load"}
    assert completed(script, "quintet", "data", "s") == ["show"]
    assert completed(script, "quintet", "generate", "--format", "=", "js") == ["json"]  # how bash cuts --format=js
    assert completed(script, "quintet", "generate", "--format", "=") == ["text", "json"]
    assert completed(script, "quintet", "generate", "--input", "=", "") == []  # bash then offers files
    assert "--model_dir=" in completed(script, "quintet", "generate", "--ids", "--mod")


def test_completion_of_zsh(folder):
    script = folder / "_quintet"
    script.write_text(quintet("completion", "zsh").out)
    for name, flags in commands().items():
        section = script.read_text().partition(f"    '{name}') _arguments")[2].partition(";;")[0]
        assert set(re.findall(r"'\*(--[\w.-]+)", section)) == flags, name
    if shutil.which("zsh") is None:
        e2e.skip("needs zsh")
    call("zsh", "-n", script)


def test_manual_pages_show_what_help_shows(folder):
    quintet("man", f"--output_dir={folder}/man1")
    known = commands()
    pages = {path.name for path in (folder / "man1").iterdir()}
    assert pages == {"quintet.1", *(f"quintet-{name.replace(' ', '-')}.1" for name in known)}, pages
    overview = (folder / "man1" / "quintet.1").read_text()
    for name, flags in known.items():
        page = folder / "man1" / f"quintet-{name.replace(' ', '-')}.1"
        text = page.read_text()
        assert set(re.findall(r"--[\w.]+[\w-]*", text.replace("\\-", "-").partition(".SH EXAMPLES")[0])) >= flags, name
        assert page.name.removesuffix(".1").replace("-", "\\-") in overview, name
        assert quintet("man", *name.split()).out == text
        if shutil.which("mandoc"):
            call("mandoc", "-T", "lint", "-W", "error", page)
        if shutil.which("groff"):
            shown = call("groff", "-man", "-Tutf8", "-wall", page)
            text_of = re.sub(".\b", "", shown.stdout)  # bold is written over
            assert not shown.stderr and all(flag in text_of for flag in flags) and "EXAMPLES" in text_of, shown
    wrong = quintet("man", "trian", expect=2)
    assert "'trian'" in wrong.err and "train" in wrong.err, wrong


def test_the_version_names_the_commit(folder):
    first = quintet("--version").out.splitlines()[0]
    script = ["cmake", f"-DFILE={folder}/commit.cpp", f"-DSOURCE={ROOT}", "-P", ROOT / "cmake" / "commit.cmake"]
    call(*script)
    written = folder / "commit.cpp"
    commit = re.search(r'"([^"]*)";', written.read_text()).group(1)
    head = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    assert commit.removesuffix("-dirty") == head[:9], (commit, head)
    built = re.fullmatch(r"quintet \d+\.\d+\.\d+ \((?:[0-9a-f]{9}(?:-dirty)?, )?CUDA: .*\)", first)
    assert built, first
    # Written again only for another commit: a build that finds nothing new compiles nothing.
    before = written.stat().st_mtime_ns
    call(*script)
    assert written.stat().st_mtime_ns == before
    # From an archive of the source, which has no repository of its own.
    (folder / "source").mkdir()
    call("cmake", f"-DFILE={folder}/commit.cpp", f"-DSOURCE={folder}/source", "-P", ROOT / "cmake" / "commit.cmake")
    assert 'kCommit = "";' in written.read_text()
    # And where there is no git.
    written.unlink()
    script[0] = shutil.which("cmake")
    call("env", "PATH=/nonexistent", *script)
    assert 'kCommit = "";' in written.read_text()


e2e.run(globals())
