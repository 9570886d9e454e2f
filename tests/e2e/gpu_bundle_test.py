"""scripts/gpu_bundle: what it makes runs without the checkout, the build and the environment it came from."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from e2e import QUINTET, ROOT, TINY, run, skip

CLEAN = {"PATH": "/usr/bin:/bin"}
# What every Debian has and a launcher calls.
COMMANDS = ["sh", "basename", "dirname", "grep", "head", "ldconfig", "mkdir", "mv", "rm", "sed", "tar", "touch"]
C_LIBRARY = re.compile(r"(ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|util|anl))\.so")


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
    done = subprocess.run([sys.executable, ROOT / "scripts" / "gpu_bundle", out, f"--build={build}", "--level=1",
                           "--limit_mib=60", *flags], capture_output=True, text=True, timeout=120)
    shutil.rmtree(build)
    return done, out


def call(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60, env=CLEAN,
                          cwd="/")


MADE = tempfile.TemporaryDirectory(prefix="quintet-gpu-bundle-")


def copy_of_bundle(folder):
    """A copy of one bundle, which is made once; packing takes longest here."""
    whole = pathlib.Path(MADE.name) / "bundle"
    if not whole.exists():
        done, whole = make(pathlib.Path(MADE.name))
        assert done.returncode == 0 and "3 programs, 2 GPU tests" in done.stdout, done
    return shutil.copytree(whole, folder)


def assert_icu_reads_what_is_left(libraries):
    """Names of languages (the preprocessor translate) and normal forms (BERT's vocabulary); most else is dropped."""
    version = next(libraries.glob("libicudata.so.*")).suffix[1:]
    assert sum(byte != 0 for byte in next(libraries.glob("libicudata.so.*")).read_bytes()[::1000]) < 5000
    script = f"""import ctypes
icu, text, error = ctypes.CDLL("libicuuc.so.{version}"), (ctypes.c_uint16 * 64)(), ctypes.c_int()
length = icu.uloc_getDisplayLanguage_{version}(b"de", b"en", text, 64, ctypes.byref(error))
icu.unorm2_getInstance_{version}(None, b"nfkc", 0, ctypes.byref(error))
print(error.value, "".join(map(chr, text[:length])))"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          env={**CLEAN, "LD_LIBRARY_PATH": str(libraries)})
    assert said.stdout == "0 German\n", said


def test_programs_run_in_a_clean_environment_after_moving(tmp_path):
    moved = copy_of_bundle(tmp_path / "moved away")
    version = call(moved / "bin" / "quintet", "--version")
    assert version.returncode == 0 and version.stdout.startswith("quintet "), version
    loaded = subprocess.run(["env", "-i", "PATH=/usr/bin:/bin", f"LD_LIBRARY_PATH={moved}/unpacked/lib", "ldd",
                             moved / "unpacked" / "libexec" / "quintet"], capture_output=True, text=True).stdout
    ours = [line for line in loaded.splitlines() if "libdnnl" in line or "libhdf5" in line]
    assert len(ours) == 2 and all(str(moved) in line for line in ours), loaded
    config = call(moved / "bin" / "quintet", "config", "--gin_file=quintet/quickstart.gin", "--gin.MODEL_DIR='/tmp/x'")
    assert config.returncode == 0, config
    assert (moved / "unpacked" / "share" / "quintet" / "configs" / "quintet" / "quickstart.gin").exists()
    assert_icu_reads_what_is_left(moved / "unpacked" / "lib")
    fixtures = moved / "unpacked" / "tests" / "fixtures"
    assert (fixtures / "model").is_dir() and (moved / "bench" / "gpu" / "run").exists()
    assert not list(moved.rglob("libc.so*")) and not list(moved.rglob("libcuda*"))


def test_a_tool_is_started_on_the_program_itself(tmp_path):
    out = copy_of_bundle(tmp_path / "bundle")
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho $LD_LIBRARY_PATH\necho $*\nshift\nexec \"$@\"\n")
    tool.chmod(0o755)
    done = subprocess.run([out / "bin" / "quintet", "--version"], capture_output=True, text=True, timeout=60,
                          env={**CLEAN, "QUINTET_LAUNCH_WITH": f"{tool} --kernel-name=regex:^(a|b)_kernel$"})
    libraries, words, said = done.stdout.splitlines()[:3]
    assert f"{out}/unpacked/lib" in libraries and said.startswith("quintet "), done
    assert words == f"--kernel-name=regex:^(a|b)_kernel$ {out}/unpacked/libexec/quintet --version", done


def test_its_tests_run_with_their_environment_and_their_failures_count(tmp_path):
    out = copy_of_bundle(tmp_path / "bundle")
    both = call(out / "test")
    assert both.returncode == 1 and "1 passed, 1 failed" in both.stdout and "FAILED  bad_test" in both.stdout, both
    log = tmp_path / "log"
    log.write_text(both.stdout + "\nok      another_test\n")
    again = call(out / "test", f"--resume={log}")
    assert again.returncode == 1 and again.stdout == "1 passed, 1 failed, 0 skipped\n", again
    log.write_text("ok      good_test\nok      bad_t")  # cut short
    assert "FAILED  bad_test" in call(out / "test", f"--resume={log}").stdout
    good = call(out / "test", "good")
    assert good.returncode == 0 and "1 passed, 0 failed" in good.stdout, good
    # Each is said as it ends; one that takes too long is done again.
    program = out / "bin" / "good_test"
    # delay: a test that hangs
    program.write_text("#!/bin/sh\n[ \"$1\" = --help ] || exec sleep 20\n")
    both = call(out / "test", "--seconds=2", "--jobs=2")
    assert both.returncode == 3 and both.stdout.startswith("FAILED  bad_test (exit 1)\nlate    good_test (stopped after 2 s)\n"), both
    assert both.stdout.endswith("0 passed, 1 failed, 0 skipped, 1 late\n"), both
    log.write_text(both.stdout + "Running bad_test\n")
    program.write_text("#!/bin/sh\necho no GPU\nexit 77\n")
    again = call(out / "test", f"--resume={log}")
    assert again.returncode == 1 and again.stdout == "skipped good_test no GPU\n0 passed, 1 failed, 1 skipped\n", again
    assert "('good_test', 'good_test', [], ['A=1', 'B=two words'])" in (out / "test").read_text()


def test_a_bundle_over_the_limit_is_refused_and_removed(tmp_path):
    done, out = make(tmp_path, "--limit_mib=1")
    assert done.returncode == 1 and "is more than 1 MiB" in done.stderr and not out.exists(), done


def bare_root(folder):
    """A root folder with the C library and a few commands of this machine; (words that run a command in it, root)."""
    root = folder / "root"
    for command in COMMANDS:
        program = shutil.which(command, path=os.environ["PATH"] + ":/sbin:/usr/sbin")
        (root / "bin").mkdir(parents=True, exist_ok=True)
        shutil.copy(program, root / "bin" / command)
        loaded = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        for library in re.findall(r"(/\S+) \(0x", loaded):
            (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, root / library[1:])
    system = re.search(r"=> (/\S+)/libc\.so\.6", subprocess.run(["ldd", QUINTET], capture_output=True, text=True).stdout)[1]
    (root / system[1:]).mkdir(parents=True, exist_ok=True)
    for library in os.listdir(system):
        if C_LIBRARY.match(library):
            shutil.copy(os.path.join(system, library), root / system[1:] / library)
    for name in ("dev", "proc", "tmp", "root"):
        (root / name).mkdir()
    enter = (f"mount --rbind /dev '{root}/dev' && mount -t proc proc '{root}/proc' && "
             f"exec chroot '{root}' /bin/sh -c 'cd /; exec \"$@\"' sh \"$@\"")
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *user, "--mount", "--pid", "--fork", "sh", "-c", enter, "sh"], root


def test_programs_run_where_nothing_is_installed(tmp_path):
    """No toolkit, no driver, no C++: whatever the build here found. Without a GPU that is said, and all else works."""
    inside, root = bare_root(tmp_path)
    environment = {"PATH": "/bin:/usr/bin:/sbin:/usr/sbin", "HOME": "/root", "OMP_NUM_THREADS": "1"}

    def call_inside(*words):
        return subprocess.run([*inside, *words], capture_output=True, text=True, timeout=120, env=environment)

    entered = call_inside("/bin/basename", "a/b")
    if entered.stdout != "b\n":
        skip(f"no root of our own: {entered.stderr.strip()}")
    copy_of_bundle(root / "bundle")
    toolkits = [str(path) for path in root.rglob("lib*") if re.match(r"lib(cuda|cudart|cublas\w*|nccl)\.", path.name)]
    assert not toolkits, toolkits
    program = "/bundle/bin/quintet"
    version = call_inside(program, "--version")
    assert version.returncode == 0 and version.stdout.startswith("quintet "), version
    trained = call_inside(program, "train", *TINY, "--model_dir=/root/run", "--gin.TRAIN_STEPS=3", "--device=cpu")
    assert trained.returncode == 0 and (root / "root" / "run" / "checkpoint_3").is_dir(), trained
    refused = call_inside(program, "bench", "gemm", "--device=cuda", "--m=4", "--n=4", "--k=4", "--steps=1")
    assert refused.returncode == 4 and "--device=cuda: " in refused.stderr and "--device=cpu" in refused.stderr, refused


def test_a_program_linked_to_the_toolkit_is_refused(tmp_path):
    """It would not start on a machine without a GPU."""
    if shutil.which("cc") is None:
        skip("needs a C compiler (Debian: gcc)")
    build = tmp_path / "build"
    build.mkdir()
    (tmp_path / "a.c").write_text("int ncclGetVersion(int* version) { return *version = 0; }\n")
    (tmp_path / "b.c").write_text("int ncclGetVersion(int*);\nint main() { int n; return ncclGetVersion(&n); }\n")
    library = tmp_path / "libnccl.so.2"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-o", library, tmp_path / "a.c"], check=True)
    for there in (True, False):
        subprocess.run(["cc", "-o", build / "quintet", tmp_path / "b.c", library] +
                       ([f"-Wl,-rpath,{tmp_path}"] if there else []), check=True)
        done = subprocess.run([sys.executable, ROOT / "scripts" / "gpu_bundle", tmp_path / "out", f"--build={build}"],
                              capture_output=True, text=True)
        assert done.returncode == 1 and "libnccl.so.2" in done.stderr and "linked" in done.stderr, done
        shutil.rmtree(tmp_path / "out", ignore_errors=True)


if shutil.which("xz") is None:
    print("skipped: xz is not there (apt-get install xz-utils)")
    sys.exit(77)
run(globals())
