#!/usr/bin/env bash
# toolchain.sh: make sure that clang, lld and the LLVM tools with the gfx950 target are here (LLVM 20 or newer; 22 is tested).
# Debian or Ubuntu with root installs the packages; elsewhere it says what to do. Does nothing when they are there already.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(clang-22 clang-tools-22 lld-22 llvm-22)

has() { # has TOOL: a usable one in $GFX950_LLVM, on PATH or in the places that the project looks
    local tool=$1 folder suffix version
    local folders=(/usr/lib/llvm-22/bin /opt/rocm/llvm/bin)
    if [ -n "${GFX950_LLVM:-}" ]; then folders=("$GFX950_LLVM"); else IFS=: read -ra path <<<"$PATH"; folders=("${path[@]}" "${folders[@]}"); fi
    for folder in "${folders[@]}"; do
        for suffix in -22 -24 -23 -21 -20 ""; do
            [ -x "$folder/$tool$suffix" ] || continue
            version=$("$folder/$tool$suffix" --version 2>/dev/null | grep -oE '(version|LLD) [0-9]+' | head -1 | cut -d' ' -f2)
            [ "${version:-0}" -ge 20 ] && return 0
        done
    done
    return 1
}

missing=()
for tool in clang llvm-objdump ld.lld llvm-mc clang-offload-bundler; do has "$tool" || missing+=("$tool"); done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
echo "toolchain: missing ${missing[*]} (LLVM 20 or newer, with the AMDGPU target)"

install() { # install COMMAND...: with root or passwordless sudo
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}
can_install() { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }

if command -v apt-get >/dev/null && can_install; then
    echo "toolchain: installing ${packages[*]} (85 MB)"
    install apt-get update -qq
    if apt-cache show "${packages[0]}" >/dev/null 2>&1; then
        DEBIAN_FRONTEND=noninteractive install apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
        exit 0
    fi
    echo "toolchain: this distribution has no ${packages[0]} package"
fi

if [ "${missing[*]}" = clang-offload-bundler ]; then
    echo "toolchain: only compressed bundles need it" >&2
    exit 0
fi

cat >&2 <<'TEXT'
toolchain: could not install by itself. Any one of these will do:
  Debian 12, Ubuntu 24.04 or newer   sudo apt-get install clang-22 clang-tools-22 lld-22 llvm-22   (or LLVM's own packages)
  Fedora                             sudo dnf install clang lld llvm
  Arch                               sudo pacman -S clang lld llvm
  ROCm 7 or newer                    export GFX950_LLVM=/opt/rocm/llvm/bin
  any folder with LLVM >= 20         export GFX950_LLVM=/path/to/bin
  no root at all                     .venv/bin/pip install ziglang==0.17.1
                                     compiles and reports registers; disassembly, checks and emulation need llvm-objdump
TEXT
if .venv/bin/python -c 'import ziglang' 2>/dev/null; then echo "toolchain: ziglang is here: compiling works" >&2; exit 0; fi
exit 1
