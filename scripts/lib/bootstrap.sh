# Sourced by scripts/quickstart and scripts/test: installs what the build needs and configures it.
#
#   . scripts/lib/bootstrap.sh
#   bootstrap_packages         # detect -> plan -> act; exit 4 with the line to run if it may not install
#   bootstrap_build quintet    # configure (preset cpu) and build targets; no target: everything
#
# Detection asks the compiler and PATH, not the package manager, so libraries installed by other means count.

# command, header or module of Python | what proves that it is there | Debian and Ubuntu package
QUINTET_NEEDS="
command g++ g++
command cmake cmake
command pkg-config pkg-config
header fmt/format.h libfmt-dev
header CLI/App.hpp libcli11-dev
header nlohmann/json.hpp nlohmann-json3-dev
header dnnl.h libdnnl-dev
header hwy/highway.h libhwy-dev
header sentencepiece_processor.h libsentencepiece-dev
header google/protobuf/message_lite.h libprotobuf-dev
command protoc protobuf-compiler
header zlib.h zlib1g-dev
header zstd.h libzstd-dev
header highwayhash/c_bindings.h libhighwayhash-dev
header re2/re2.h libre2-dev
header unicode/normalizer2.h libicu-dev
header hdf5/serial/hdf5.h libhdf5-dev
command mpicc libopenmpi-dev
command mpirun openmpi-bin
command python3 python3
command curl curl
header gtest/gtest.h libgtest-dev
header benchmark/benchmark.h libbenchmark-dev
header boost/context/detail/fcontext.hpp libboost-context-dev
header boost/beast/http/parser.hpp libboost-dev
"
# Better with them, possible without.
QUINTET_WANTS="
command ninja ninja-build
command ccache ccache
header histedit.h libedit-dev
"

say() { printf '%s\n' "$*" >&2; }

# Prints the packages whose proof is missing, from a table on standard input.
missing_packages() {
  local kind proof package source=""
  while read -r kind proof package; do
    [ -n "$kind" ] || continue
    if [ "$kind" = command ]; then
      command -v "$proof" >/dev/null || echo "$package"
    elif [ "$kind" = module ]; then
      python3 -c "import $proof" 2>/dev/null || /usr/bin/python3 -c "import $proof" 2>/dev/null || echo "$package"
    else
      # One preprocessor run answers for all headers. Debian's hwy has a static library only.
      source+="#if !__has_include(<$proof>)"$'\n'"missing $package"$'\n#endif\n'
    fi
  done
  [ -n "$source" ] || return 0
  if command -v g++ >/dev/null; then
    printf '%s' "$source" | g++ -x c++ -E -P - | sed -n 's/^missing //p'
  else
    printf '%s' "$source" | sed -n 's/^missing //p'
  fi
}

bootstrap_packages() {
  local needs wants
  needs=$(missing_packages <<<"$QUINTET_NEEDS" | sort -u | tr '\n' ' ')
  wants=$(missing_packages <<<"$QUINTET_WANTS" | sort -u | tr '\n' ' ')
  [ -n "$needs$wants" ] || return 0
  local install="apt-get install --no-install-recommends -y $needs$wants"
  local as_root=""
  if [ "$(id -u)" -ne 0 ]; then
    as_root="sudo"
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then as_root="none"; fi
  fi
  if ! command -v apt-get >/dev/null || [ "$as_root" = none ]; then
    [ -n "$needs" ] || { say "setup: ninja and ccache would make the build faster, libedit-dev lets lines be edited; going on without"; return 0; }
    say "setup: missing: $needs"
    say "setup: run this as root, then start again:"
    say "  apt-get update && apt-get install --no-install-recommends $needs"
    exit 4
  fi
  say "setup: installing: $needs$wants"
  export DEBIAN_FRONTEND=noninteractive
  $as_root apt-get update -qq || say "setup: apt-get update failed; trying with the lists that are there"
  # shellcheck disable=SC2086 -- a list of packages
  if ! $as_root env DEBIAN_FRONTEND=noninteractive $install -qq >/tmp/quintet-apt.log 2>&1; then
    tail -5 /tmp/quintet-apt.log >&2
    needs=$(missing_packages <<<"$QUINTET_NEEDS" | sort -u | tr '\n' ' ')
    [ -z "$needs" ] && return 0
    say "setup: apt-get could not install: $needs(whole output: /tmp/quintet-apt.log)"
    exit 4
  fi
}

# The build folder; tests name their own.
QUINTET_BUILD=${QUINTET_BUILD:-build}

# CMake options of the next bootstrap_build.
QUINTET_OPTIONS=()

# Sets them, for a new build folder, to what using the program takes: CUDA only where a GPU answers, for that GPU
# alone. A folder that is there keeps what it has.
bootstrap_options_for_use() {
  [ ! -e "$QUINTET_BUILD/CMakeCache.txt" ] || return 0
  QUINTET_OPTIONS=(-DQUINTET_EMULATOR=OFF -DQUINTET_CUDA=OFF)
  local sm
  sm=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. ') || return 0
  [ -n "$sm" ] || return 0
  [ "$sm" != 90 ] || sm=90a
  QUINTET_OPTIONS=(-DQUINTET_EMULATOR=OFF -DQUINTET_CUDA=AUTO
                   "-DQUINTET_CUDA_GENCODE=SHELL:-gencode arch=compute_$sm,code=sm_$sm")
}

# bootstrap_build [TARGET...]: configures the build folder and builds.
bootstrap_build() {
  local build=$QUINTET_BUILD
  local jobs memory
  jobs=$(nproc)
  # A compiler takes about 1 GB; never start more of them than fit.
  memory=$(awk '/MemAvailable/ {print int($2 / 1000000)}' /proc/meminfo 2>/dev/null || echo "$jobs")
  [ "$memory" -ge "$jobs" ] || jobs=$((memory > 1 ? memory : 1))
  local configure=(cmake "$build")
  if [ ! -e "$build/CMakeCache.txt" ]; then
    local generator=Ninja
    command -v ninja >/dev/null || generator="Unix Makefiles"
    mkdir -p "$build"
    configure=(cmake --preset cpu -B "$build" -G "$generator")
  fi
  "${configure[@]}" ${QUINTET_OPTIONS[@]+"${QUINTET_OPTIONS[@]}"} >"$build/configure.log" 2>&1 ||
    { cat "$build/configure.log" >&2; say "setup: configuring failed"; exit 4; }
  local arguments=()
  [ $# -eq 0 ] || arguments=(--target "$@")
  if [ -t 2 ]; then
    cmake --build "$build" -j "$jobs" "${arguments[@]}" >&2
  else
    cmake --build "$build" -j "$jobs" "${arguments[@]}" >"$build/build.log" 2>&1 || { tail -60 "$build/build.log" >&2; false; }
  fi || { say "setup: the build failed"; exit 1; }
}
