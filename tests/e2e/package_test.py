"""The Debian package: what cpack makes, installed, run and removed, in a root of its own; with --all in a whole Debian."""

import os
import pathlib
import re
import shutil
import subprocess

import e2e
from e2e import ROOT, TINY, quintet

BUILD = pathlib.Path(os.environ.get("QUINTET_BUILD", ROOT / "build"))


def call(*command, expect=0, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=1500 * e2e.PATIENCE,
                          stdin=subprocess.DEVNULL, **options)
    assert expect is None or done.returncode == expect, f"{command}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


def package(folder, *components):
    """The .deb files of these components."""
    for program in ("dpkg-shlibdeps", "dpkg-deb"):
        if shutil.which(program) is None:
            e2e.skip(f"needs {program} (Debian: dpkg-dev)")
    call("cpack", "-G", "DEB", "--config", BUILD / "CPackConfig.cmake", "-B", folder / "packages", "-D",
         f"CPACK_COMPONENTS_ALL={';'.join(components)}", cwd=folder)
    return sorted((folder / "packages").glob("*.deb"))


def field(deb, name):
    return call("dpkg-deb", "--field", deb, name).stdout.strip()


def test_the_package_is_installed_runs_and_is_removed(folder):
    [deb] = package(folder, "program")
    assert re.fullmatch(r"quintet_\d+\.\d+\.\d+_\w+\.deb", deb.name), deb
    root = folder / "root"
    for name in ("info", "updates", "triggers", "parts"):
        (root / "var" / "lib" / "dpkg" / name).mkdir(parents=True)
    for name in ("status", "available"):
        (root / "var" / "lib" / "dpkg" / name).touch()
    # Its scripts call ldconfig, for the C library; this one is noted and not done.
    stub = folder / "stubs" / "ldconfig"
    stub.parent.mkdir()
    stub.write_text(f"#!/bin/sh\necho $0 >> {folder}/called\n")
    stub.chmod(0o755)
    dpkg = ["env", f"PATH={stub.parent}:{os.environ['PATH']}", "dpkg", f"--root={root}",
            "--force-not-root,depends,bad-path,script-chrootless", "--log=/dev/null"]
    call(*dpkg, "--install", deb)
    assert (folder / "called").exists()
    assert (root / "usr" / "lib" / "libquintet.so").resolve().is_file()
    program = root / "usr" / "bin" / "quintet"
    # Its dependencies are the packages of the libraries that it is linked with.
    depends = set(re.findall(r"(?:^|, )([\w.+-]+)", field(deb, "Depends")))
    for name in re.findall(r"NEEDED\s+(\S+)", call("objdump", "-p", program).stdout):
        path = re.search(rf"{re.escape(name)} .*=> (\S+)", call("/sbin/ldconfig", "-p").stdout).group(1)
        owners = {line.split(":")[0] for line in call("dpkg", "-S", path, os.path.realpath(path), "/usr" + os.path.realpath(path),
                                                      expect=None).stdout.splitlines()}
        assert owners & depends, (name, owners, depends)
    said = call(program, "--version").stdout
    assert said.splitlines()[0].startswith("quintet "), said
    settings = {name: value for name, value in os.environ.items() if name != "QUINTET_CONFIGS"}
    call(program, "train", *TINY, f"--model_dir={folder}/run", "--gin.TRAIN_STEPS=3", cwd=folder, env=settings)
    unit = (root / "usr" / "lib" / "systemd" / "system" / "quintet-serve.service").read_text()
    assert "ExecStart=/usr/bin/quintet serve " in unit, unit
    for name in ("LICENSE", "CHANGELOG.md"):
        assert (root / "usr" / "share" / "doc" / "quintet" / name).is_file(), name
    call(*dpkg, "--remove", "quintet")
    left = [path for path in (root / "usr").rglob("*")] if (root / "usr").exists() else []
    assert not left, left


def mirror():
    """Address and suite of the first source of Debian packages of this machine."""
    printed = call("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Identifier: Packages").stdout
    for line in printed.splitlines():
        address, suite, component = line.split()
        if component == "main" and re.fullmatch(r"[a-z]+", suite):
            return address, suite
    e2e.skip("apt knows no Debian mirror")


def test_in_a_whole_debian(folder):
    if "QUINTET_DEBOOTSTRAP" not in os.environ:
        e2e.skip("a root of Debian takes minutes: package_all_test (scripts/test --all)")
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        e2e.skip("needs debootstrap, and to be root")
    debs = package(folder, "program", "development")
    address, suite = mirror()
    root = folder / "debian"
    made = call("debootstrap", "--variant=minbase", suite, root, address, expect=None)
    if made.returncode != 0:
        e2e.skip(f"debootstrap: {made.stdout[-300:]}")
    for deb in debs:
        shutil.copy(deb, root / "root")
    inside = ["chroot", root, "env", "DEBIAN_FRONTEND=noninteractive", "HOME=/root", "OMP_NUM_THREADS=1"]
    [program] = [deb.name for deb in debs if deb.name.startswith("quintet_")]
    call(*inside, "apt-get", "install", "-y", "--no-install-recommends", f"/root/{program}")
    call(*inside, "quintet", "train", *TINY, "--model_dir=/root/run", "--gin.TRAIN_STEPS=3")
    assert (root / "root" / "run" / "checkpoint_3").is_dir()
    answered = call(*inside, "quintet", "generate", "--model_dir=/root/run", "words: 7").stdout
    assert answered, answered
    call(*inside, "apt-get", "remove", "-y", "quintet")
    assert not list((root / "usr").rglob("*quintet*")), list((root / "usr").rglob("*quintet*"))
    call(*inside, "quintet", "--version", expect=127)


def test_the_image_is_made_by_the_readmes_commands(folder):
    text = (ROOT / "Dockerfile").read_text()
    readme = "\n".join(re.findall(r"^```bash\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S))
    known = {line.partition(" #")[0].strip() for line in readme.splitlines()}
    runs = re.findall(r"^RUN (.*)$", text, re.M)
    assert runs and all(line in known for line in runs), (runs, known)
    version = re.search(r"project\(quintet VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    assert set(re.findall(r"quintet_(\d\S*?)_amd64", text + readme)) == {version}
    assert quintet("--version").out.startswith(f"quintet {version} ")


e2e.run(globals())
