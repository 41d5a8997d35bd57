"""What an installation weighs, and how long the commands take to start.

    ./dev bench install [--rounds N]

The sdist and the wheel are built from the tree, and the wheel is installed into a clean environment that sees this one's dependencies.
Commands are started in turn, each in a process of its own. Reported: medians over the rounds, of the time on the clock and of the
processor's time (user and system), which other programs on the machine disturb less. "beyond" is the median of the differences within a
round.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path

from _machine import describe, write

ROOT = Path(__file__).parent.parent
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
IMPORT_GOAL_MS, HELP_GOAL_MS = 30.0, 150.0
Times = dict[str, list[tuple[float, float]]]  # by command: seconds on the clock and of the processor, a round each


def build(folder: Path) -> tuple[Path, Path]:
    """The sdist and the wheel of what git tracks."""
    tree = folder / "tree"
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    for what in ("build_sdist", "build_wheel"):
        subprocess.run([sys.executable, "-c", BUILD, what, str(folder / "dist")], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    (sdist,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    return sdist, wheel


def install(wheel: Path, folder: Path) -> Path:
    """The folder of a clean environment's programs."""
    venv.EnvBuilder(symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    words = ["--python", str(folder / "bin" / "python"), "install", "--quiet", "--no-deps", "--no-index", "--no-compile", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    return folder / "bin"


def timed(words: list[str], cwd: Path) -> tuple[float, float]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    start = time.perf_counter()
    process = subprocess.Popen(words, cwd=cwd, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return time.perf_counter() - start, used.ru_utime + used.ru_stime


def in_turn(commands: dict[str, list[str]], rounds: int, cwd: Path) -> Times:
    times: Times = {name: [] for name in commands}
    for one in range(rounds + 1):
        for name, words in commands.items():
            took = timed(words, cwd)
            if one:  # the first round compiles modules
                times[name].append(took)
    return times


def row(times: Times, name: str, beyond: str, goal: str) -> str:
    clock, processor = (1e3 * statistics.median(took[i] for took in times[name]) for i in (0, 1))
    more = [1e3 * statistics.median(a[i] - b[i] for a, b in zip(times[name], times[beyond], strict=True)) for i in (0, 1)] if beyond else []
    return f"| {name} | {clock:.0f} | {processor:.0f} | {f'{more[0]:.0f} | {more[1]:.0f}' if more else '|'} | {goal} |"


def size_of(folder: Path, pattern: str = "**/*") -> float:
    return sum(path.stat().st_size for path in folder.glob(pattern) if path.is_file() and path.suffix != ".pyc") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=31)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sdist, wheel = build(folder)
        programs = install(wheel, folder / "environment")
        (packages,) = (folder / "environment").glob("lib/python*/site-packages")
        python, numscope = str(programs / "python"), str(programs / "numscope")
        sizes = {
            "wheel": wheel.stat().st_size / 1e6,
            "sdist": sdist.stat().st_size / 1e6,
            "installed": size_of(packages / "numscope"),
            "of it the kernel": size_of(packages / "numscope", "summary/*.so"),
            "of it the page": size_of(packages / "numscope" / "page" / "static"),
        }
        (folder / "script.py").write_text("import torch\n")
        quick = {
            "python -c pass": [python, "-c", "pass"],
            "python -c 'import numscope'": [python, "-c", "import numscope"],
            "numscope --version": [numscope, "--version"],
            "numscope --help": [numscope, "--help"],
        }
        slow = {"python script.py": [python, "script.py"], "numscope run script.py": [numscope, "run", "script.py"]}
        times = in_turn(quick, rounds, folder) | in_turn(slow, max(3, rounds // 3), folder)
    lines = ["| | MB |", "|---|---|", *(f"| {name} | {size:.2f} |" for name, size in sizes.items()), ""]
    lines += ["| command | ms | processor | ms beyond | processor | goal |", "|---|---|---|---|---|---|"]
    lines += [
        row(times, "python -c pass", "", ""),
        row(times, "python -c 'import numscope'", "python -c pass", f"{IMPORT_GOAL_MS:.0f} ms beyond Python"),
        row(times, "numscope --version", "python -c pass", ""),
        row(times, "numscope --help", "python -c pass", f"{HELP_GOAL_MS:.0f} ms in all"),
        row(times, "python script.py", "", ""),
        row(times, "numscope run script.py", "python script.py", ""),
    ]
    load = f"{os.getloadavg()[0]:.0f} programs wanted the {os.cpu_count()} cores at the end"
    lines += ["", f"`script.py` imports torch and ends. Beyond: above Python alone, or above the script under Python. {load}."]
    write("install", {"machine": describe(), "sizes_mb": sizes, "seconds": times}, "Sizes and start-up times", lines)


if __name__ == "__main__":
    main()
