"""scripts/gpu_bundle: what it makes runs without the checkout, the build and the environment it came from."""

import shutil
import subprocess
import sys

from e2e import QUINTET, ROOT, run

CLEAN = {"PATH": "/usr/bin:/bin"}


def make(tmp_path, *flags):
    """A build folder of its own, with two GPU tests, and the bundle of it: (the finished process, OUT)."""
    build, out = tmp_path / "build", tmp_path / "bundle"
    build.mkdir()
    shutil.copyfile(QUINTET, build / "quintet")
    for name, source in (("good_test", "env"), ("bad_test", "false"), ("cpu_test", "true")):
        shutil.copyfile(shutil.which(source), build / name)
    for file in build.iterdir():
        file.chmod(0o755)
    (build / "CTestTestfile.cmake").write_text(
        f"add_test(good_test \"{build}/good_test\")\nadd_test(bad_test \"{build}/bad_test\")\n"
        f"add_test(cpu_test \"{build}/cpu_test\")\n"
        "set_tests_properties(good_test PROPERTIES LABELS \"unit;gpu\" ENVIRONMENT \"A=1;B=two words\")\n"
        "set_tests_properties(bad_test PROPERTIES LABELS gpu)\n")
    done = subprocess.run([sys.executable, ROOT / "scripts" / "gpu_bundle", out, f"--build={build}", "--level=1", *flags],
                          capture_output=True, text=True, timeout=120)
    shutil.rmtree(build)
    return done, out


def call(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60, env=CLEAN,
                          cwd="/")


def test_programs_run_in_a_clean_environment_after_moving(tmp_path):
    done, out = make(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 programs, 2 GPU tests" in done.stdout, done.stdout
    moved = tmp_path / "moved away"
    out.rename(moved)
    version = call(moved / "bin" / "quintet", "--version")
    assert version.returncode == 0 and version.stdout.startswith("quintet "), version
    loaded = subprocess.run(["env", "-i", "PATH=/usr/bin:/bin", f"LD_LIBRARY_PATH={moved}/unpacked/lib", "ldd",
                             moved / "unpacked" / "libexec" / "quintet"], capture_output=True, text=True).stdout
    ours = [line for line in loaded.splitlines() if "libdnnl" in line or "libhdf5" in line]
    assert len(ours) == 2 and all(str(moved) in line for line in ours), loaded
    config = call(moved / "bin" / "quintet", "config", "--gin_file=quintet/quickstart.gin", "--gin.MODEL_DIR='/tmp/x'")
    assert config.returncode == 0, config
    assert (moved / "unpacked" / "models" / "configs" / "quintet" / "quickstart.gin").exists()
    fixtures = moved / "unpacked" / "tests" / "fixtures"
    assert (fixtures / "attention").is_dir() and (moved / "bench" / "gpu" / "run").exists()
    assert not list(moved.rglob("libc.so*")) and not list(moved.rglob("libcuda*"))


def test_its_tests_run_with_their_environment_and_their_failures_count(tmp_path):
    done, out = make(tmp_path)
    assert done.returncode == 0, done.stderr
    both = call(out / "test")
    assert both.returncode == 1 and "1 passed, 1 failed" in both.stdout and "FAILED  bad_test" in both.stdout, both
    good = call(out / "test", "good")
    assert good.returncode == 0 and "1 passed, 0 failed" in good.stdout, good
    command = [line for line in (out / "test").read_text().splitlines() if line.startswith("try 'good_test'")]
    assert command == ["try 'good_test' 'A=1' 'B=two words' \"$here/bin/good_test\""], command


def test_a_bundle_over_the_limit_is_refused_and_removed(tmp_path):
    done, out = make(tmp_path, "--limit_mib=1")
    assert done.returncode == 1 and "is more than 1 MiB" in done.stderr and not out.exists(), done


if shutil.which("zstd") is None:
    print("skipped: zstd is not there (apt-get install zstd)")
    sys.exit(77)
run(globals())
