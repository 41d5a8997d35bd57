"""The native kernel. All else about the package is in pyproject.toml."""

import glob
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = [
    "module",
    "python",
    "ledger",
    "weights",
    "journal",
    "log",
    "noting",
    "witness",
    "hooks",
    "derived",
    "observe",
    "pool",
    "openmp",
    "row",
    "fp8",
    "integers",
    "select",
    "extras",
    "quantize",
    "decode",
    "checksum",
    "sketch",
    "kernel_baseline",
    "kernel_avx2",
    "kernel_avx512",
]

native = Extension(
    "numscope.summary._native",
    sources=[f"csrc/{name}.cpp" for name in SOURCES],
    depends=[
        "setup.py",
        *sorted(glob.glob("csrc/*.h")),
    ],
    # No -march: the instruction set is chosen at run time. No -ffast-math: a kernel that hunts for nan must not be told there is none.
    extra_compile_args=["-std=c++17", "-O3", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math", "-pthread", "-g0"],
    extra_link_args=["-pthread", *(["-ldl"] if sys.platform == "linux" else [])],
    language="c++",
    py_limited_api=True,  # one build serves every Python from 3.10 on
    # Without a compiler the package works on its torch backend. A wheel that is published must have the kernel in it.
    optional=os.environ.get("NUMSCOPE_KERNEL") != "required",
)


class Build(build_ext):
    """Compiles as many files at once as there are cores."""

    def build_extensions(self) -> None:
        one_by_one = self.compiler.compile

        def compile(sources: list[str], **options: Any) -> list[str]:
            longest_first = sorted(sources, key=lambda source: ("kernel" not in source, source))
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                compiled = pool.map(partial(one_by_one, **options), ([source] for source in longest_first))
                return sorted(name for names in compiled for name in names)

        self.compiler.compile = compile
        super().build_extensions()


setup(
    cmdclass={"build_ext": Build},
    ext_modules=[] if sys.platform == "win32" else [native],  # the kernels are written in GCC's and clang's vector types
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
