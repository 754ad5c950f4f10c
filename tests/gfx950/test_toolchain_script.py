"""scripts/toolchain.sh on machines that have everything, can install, or can do neither."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "toolchain.sh"
BASICS = ("bash", "env", "dirname", "grep", "head", "cut", "cat")
TOOLS = ("clang", "llvm-objdump", "ld.lld", "llvm-mc", "clang-offload-bundler")


@pytest.fixture
def machine(tmp_path):
    """A PATH with nothing but basic programs; returns the folder, into which a test puts more."""
    for name in BASICS:
        found = shutil.which(name)
        assert found
        (tmp_path / name).symlink_to(found)
    program(tmp_path, "id", "echo 1000")
    return tmp_path


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def run(machine: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    # An empty folder as GFX950_LLVM keeps the script from finding this machine's own LLVM.
    environment = {"PATH": str(machine), "GFX950_LLVM": str(machine), **variables}
    return subprocess.run([SCRIPT], capture_output=True, text=True, env=environment)


def test_nothing_to_do_is_silent(machine):
    for tool in TOOLS:
        program(machine, tool, "echo 'some LLD 22.1.8'" if tool == "ld.lld" else "echo 'vendor clang version 22.1.8'")
    done = run(machine)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_machine_without_the_bundler_can_do_all_but_unpack(machine):
    for tool in TOOLS[:-1]:
        program(machine, tool, "echo 'some LLD 22.1.8'" if tool == "ld.lld" else "echo 'vendor clang version 22.1.8'")
    done = run(machine)
    assert (done.returncode, done.stderr) == (0, "toolchain: only compressed bundles need it\n")
    assert "missing clang-offload-bundler" in done.stdout


def test_old_tools_do_not_count(machine):
    for tool in TOOLS:
        program(machine, tool, "echo 'clang version 19.1.7'")
    done = run(machine)
    assert done.returncode == 1
    assert "missing clang llvm-objdump ld.lld llvm-mc clang-offload-bundler" in done.stdout


def test_without_root_or_package_manager_it_says_what_to_do(machine):
    done = run(machine)
    assert done.returncode == 1
    assert "apt-get install clang-22 clang-tools-22 lld-22 llvm-22" in done.stderr
    assert "GFX950_LLVM=/path/to/bin" in done.stderr
    assert "ziglang==0.17.1" in done.stderr


def test_root_on_debian_installs_the_packages(machine):
    program(machine, "id", "echo 0")
    program(machine, "apt-get", f'echo "$@" >> {machine}/calls')
    program(machine, "apt-cache", "exit 0")
    done = run(machine)
    assert done.returncode == 0
    calls = (machine / "calls").read_text().splitlines()
    assert calls[0].startswith("update")
    assert calls[1].startswith("install")
    assert calls[1].endswith("clang-22 clang-tools-22 lld-22 llvm-22")


def test_a_distribution_without_the_packages_is_told(machine):
    program(machine, "id", "echo 0")
    program(machine, "apt-get", "exit 0")
    program(machine, "apt-cache", "exit 100")
    done = run(machine)
    assert done.returncode == 1
    assert "this distribution has no clang-22 package" in done.stdout
    assert "or LLVM's own packages" in done.stderr


def test_the_script_is_executable():
    assert os.access(SCRIPT, os.X_OK)
