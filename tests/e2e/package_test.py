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


def names(depends):
    return set(re.findall(r"(?:^|, )([\w.+-]+)", depends, re.M))


def depends(deb):
    return names(field(deb, "Depends"))


def owners(*paths):
    """The packages of this machine that these files came with."""
    return {line.split(":")[0] for line in call("dpkg", "-S", *paths, expect=None).stdout.splitlines()}


def left_over(root):
    return [path for path in (root / "usr").rglob("*[qQ]uintet*")]


def package_root(folder):
    """An empty root, and dpkg working in it without the packages that a package depends on."""
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
    return root, ["env", f"PATH={stub.parent}:{os.environ['PATH']}", "dpkg", f"--root={root}",
                  "--force-not-root,depends,bad-path,script-chrootless", "--log=/dev/null"]


def test_the_package_is_installed_runs_and_is_removed(folder):
    [deb] = package(folder, "program")
    assert re.fullmatch(r"quintet_\d+\.\d+\.\d+_\w+\.deb", deb.name), deb
    root, dpkg = package_root(folder)
    call(*dpkg, "--install", deb)
    assert (folder / "called").exists()
    assert (root / "usr" / "lib" / "libquintet.so").resolve().is_file()
    program = root / "usr" / "bin" / "quintet"
    # Its dependencies are the packages of the libraries that it is linked with.
    for name in re.findall(r"NEEDED\s+(\S+)", call("objdump", "-p", program).stdout):
        path = re.search(rf"{re.escape(name)} .*=> (\S+)", call("/sbin/ldconfig", "-p").stdout).group(1)
        came_with = owners(path, os.path.realpath(path), "/usr" + os.path.realpath(path))
        assert came_with & depends(deb), (name, came_with, depends(deb))
    said = call(program, "--version").stdout
    assert said.splitlines()[0].startswith("quintet "), said
    settings = {name: value for name, value in os.environ.items() if name != "QUINTET_CONFIGS"}
    call(program, "train", *TINY, f"--model_dir={folder}/run", "--gin.TRAIN_STEPS=3", cwd=folder, env=settings)
    unit = (root / "usr" / "lib" / "systemd" / "system" / "quintet-serve.service").read_text()
    assert "ExecStart=/usr/bin/quintet serve " in unit, unit
    for name in ("LICENSE", "CHANGELOG.md"):
        assert (root / "usr" / "share" / "doc" / "quintet" / name).is_file(), name
    call(*dpkg, "--remove", "quintet")
    assert not list((root / "usr").rglob("*"))


def test_the_development_package_is_found_and_is_removed(folder):
    if shutil.which("pkg-config") is None:
        e2e.skip("needs pkg-config")
    [deb] = package(folder, "development")
    assert f"quintet (= {field(deb, 'Version')})" in field(deb, "Depends")
    root, dpkg = package_root(folder)
    call(*dpkg, "--install", deb)
    # What its pkg-config file requires and links comes with the packages that it depends on, or that these depend on at once.
    declared = depends(deb)
    declared |= names(call("dpkg-query", "-W", "-f", "${Depends}\n", *declared, expect=None).stdout)
    here = {**os.environ, "PKG_CONFIG_PATH": str(root / "usr" / "lib" / "pkgconfig")}
    files = [call("pkg-config", "--variable=pcfiledir", name, env=here).stdout.strip() + f"/{name}.pc"
             for name in call("pkg-config", "--print-requires", "quintet", env=here).stdout.split()]
    own = re.search(r"^Libs: (.*)$", (root / "usr" / "lib" / "pkgconfig" / "quintet.pc").read_text(), re.M).group(1)
    libraries = [name.removeprefix(":") if name.startswith(":") else f"lib{name}.so" for name in re.findall(r"(?<= )-l(\S+)", own)]
    for name in libraries:
        if not (root / "usr" / "lib" / name.replace(".so", ".a")).exists() and name not in ("libdl.so", "librt.so", "libcudart_static.so"):
            files.append(call("c++", f"-print-file-name={name}").stdout.strip())
    for path in files:
        path = os.path.realpath(os.path.dirname(path)) + "/" + os.path.basename(path)
        assert owners(path) & declared, (path, owners(path), declared)
    # CMake's files name archives and headers that are there.
    cmake = root / "usr" / "lib" / "cmake" / "Quintet"
    assert (cmake / "QuintetConfig.cmake").is_file()
    named = re.findall(r"_IMPORT_PREFIX}/([\w/.]+)", "".join(path.read_text() for path in cmake.glob("QuintetTargets*.cmake")))
    assert len(named) > 10 and all((root / "usr" / name).exists() for name in named), named
    call(*dpkg, "--remove", "quintet-dev")
    assert not list((root / "usr").rglob("*"))


def test_without_its_tools_there_is_no_package(folder):
    # cpack looks in PATH alone here.
    without = ["-D", "CMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF", "-D", "CPACK_COMPONENTS_ALL=development"]
    said = call("env", "PATH=/nonexistent", shutil.which("cpack"), "-G", "DEB", "--config", BUILD / "CPackConfig.cmake", "-B", folder,
                *without, expect=1).stderr
    assert "apt-get install dpkg-dev file" in said, said


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
    # What quintet-dev depends on, with a compiler, builds a program outside of ours, by CMake and by pkg-config.
    [development] = [deb.name for deb in debs if deb.name.startswith("quintet-dev_")]
    call(*inside, "apt-get", "install", "-y", "--no-install-recommends", f"/root/{development}", "g++", "cmake", "make")
    shutil.copytree(ROOT / "tests" / "install" / "outside", root / "root" / "outside")
    call(*inside, "cmake", "-S", "/root/outside", "-B", "/root/mine")
    call(*inside, "cmake", "--build", "/root/mine")
    mine = ["config", "--gin_file=/root/outside/mine.gin", "--gin.MODEL_DIR='/root/x'"]
    assert "mine." in call(*inside, "/root/mine/mine", *mine).stdout
    call(*inside, "sh", "-c", "c++ $(find /root/mine -name program.cpp.o) $(pkg-config --libs quintet) -o /root/linked")
    call(*inside, "/root/linked", *mine)
    assert "-I/usr/" in call(*inside, "pkg-config", "--cflags", "--keep-system-cflags", "quintet").stdout
    call(*inside, "apt-get", "remove", "-y", "quintet-dev")
    assert {path.name for path in left_over(root) if "include" in path.parts or path.suffix in (".a", ".cmake", ".pc")} == set()
    call(*inside, "quintet", "--version")
    call(*inside, "apt-get", "remove", "-y", "quintet")
    assert not left_over(root), left_over(root)
    call(*inside, "quintet", "--version", expect=127)


def test_the_image_is_made_by_the_readmes_commands(folder):
    readme = "\n".join(re.findall(r"^```bash\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S))
    known = [set(line.partition(" #")[0].split()) for line in readme.splitlines() if line.partition("#")[0].strip()]
    runs = [set(line.split()) for line in re.findall(r"^RUN (.*)$", (ROOT / "Dockerfile").read_text(), re.M)]
    # Each with more options and packages at most.
    assert len(runs) == 4 and all(any(words <= run for words in known) for run in runs), (runs, known)
    assert "git" in runs[0] and ".git" not in (ROOT / ".dockerignore").read_text()  # the version has its commit from there
    version = re.search(r"project\(quintet VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    assert quintet("--version").out.startswith(f"quintet {version} ")


def test_quickstart_builds_what_is_installed(folder):
    if not (BUILD / "build.ninja").exists() or shutil.which("ninja") is None:
        e2e.skip("needs a build folder of ninja's")
    built = re.search(r"^bootstrap_build (.*)$", (ROOT / "scripts" / "quickstart").read_text(), re.M).group(1).split()
    needed = call("ninja", "-C", BUILD, "-t", "inputs", *built).stdout.splitlines()
    installed = re.findall(rf'FILES "{BUILD}/([\w.]+\.(?:a|so\.\d+))"', (BUILD / "cmake_install.cmake").read_text())
    assert len(installed) > 5 and set(installed) <= set(needed), set(installed) - set(needed)


e2e.run(globals())
