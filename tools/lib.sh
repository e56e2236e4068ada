# lib.sh - what ./start and ./check share; they source it from the root of the repository.
# shellcheck shell=bash

export LC_ALL=C.UTF-8
export PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin # dpkg wants these; a bare environment has none

# What a build needs, and the text that the first job trains on.
# shellcheck disable=SC2034  # those who source this use it
packages=(gcc libc6-dev cmake ninja-build pkg-config libopenblas-dev libyaml-dev libjansson-dev
    libpcre2-dev zlib1g-dev bible-kjv)

now() { echo "${EPOCHREALTIME/./}"; } # microseconds

seconds() { # since the time $1, as 12.3
    local ms=$((($(now) - $1) / 1000))
    printf '%d.%d' $((ms / 1000)) $((ms % 1000 / 100))
}

# Those of the packages $@ that are not installed.
missing() {
    local p
    for p; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || echo "$p"
    done
}

apt() { apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 "$@"; }

# May we?  Asks only a person at a terminal, and not with -y.
agreed() {
    local answer
    [ "${yes:-0}" = 0 ] && [ -t 0 ] && [ -t 1 ] || return 0
    read -r -p "$1 [Y/n] " answer
    case $answer in '' | y* | Y*) return 0 ;; *) return 1 ;; esac
}

# Install what is missing of the Debian packages $@.  Without root: say the line, fail.
need() {
    local lack n
    if ! command -v dpkg-query >/dev/null; then
        command -v cmake ninja pkg-config cc >/dev/null && return 0
        echo "This is not a Debian system; please install what these packages hold: $*" >&2
        return 1
    fi
    mapfile -t lack < <(missing "$@")
    [ ${#lack[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ]; then
        echo "Not installed: ${lack[*]}.  Please run this, then try again:" >&2
        echo "    sudo apt-get update && sudo apt-get install -y --no-install-recommends ${lack[*]}" >&2
        return 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    mkdir -p build
    apt update >build/apt.log 2>&1 || echo "apt-get update failed; trying with the lists that are here"
    n=$(apt --print-uris --no-install-recommends install "${lack[@]}" 2>>build/apt.log |
        awk '{ n++; bytes += $3 } END { printf "%d packages, %.0f MB", n, bytes / 1e6 }')
    echo "needed from Debian: ${lack[*]} (with what they need: $n)"
    agreed "Install them now?" || return 1
    if ! apt -y --no-install-recommends install "${lack[@]}" >>build/apt.log 2>&1 </dev/null; then
        tail -n 20 build/apt.log >&2
        echo "apt-get could not install: ${lack[*]} (all of it: build/apt.log)" >&2
        return 1
    fi
}

gpu_here() { compgen -G '/dev/nvidia[0-9]*' >/dev/null || [ -e /dev/dxg ]; } # dxg: Linux inside of Windows

# Is build/PRESET configured, for this very folder, and with kernels as good as the host can use?
configured() {
    [ -f "build/$1/build.ninja" ] &&
        grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$(pwd -P)" "build/$1/CMakeCache.txt" &&
        ! { gpu_here && grep -qx 'SKEIN_CUDA_QUICK:BOOL=ON' "build/$1/CMakeCache.txt"; }
}

# Configure (once, with what `settings` adds) and build a preset into build/PRESET, or only some
# targets of it; its words go to build/PRESET.log.
settings=()
build() {
    local preset=$1
    mkdir -p build
    : >"build/$preset.log"
    configured "$preset" ||
        cmake --preset "$preset" --fresh "${settings[@]}" >>"build/$preset.log" 2>&1 || return 1
    shift
    cmake --build --preset "$preset" ${1:+--target} "$@" >>"build/$preset.log" 2>&1
}
