"""The environment on which a run's numbers depend: versions, devices, threads, flags; for its folder, and to compare two runs.

Nothing secret: of environment variables only known ones are told.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any

from numscope.records.faults import ours, suppress

MOST_PACKAGES = 400
_MOST = 200  # characters of a value
# By launcher, a variable that it sets.
_LAUNCHERS = {
    "deepspeed": "DEEPSPEED_ELASTICITY_CONFIG",
    "accelerate": "ACCELERATE_MIXED_PRECISION",
    "torchrun": "TORCHELASTIC_RUN_ID",
    "mpirun": "OMPI_COMM_WORLD_SIZE",
    "srun": "SLURM_PROCID",
}
_VARIABLES = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    *("CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
    *("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"),
    *("CUDA_LAUNCH_BLOCKING", "ATEN_CPU_CAPABILITY", "MKL_CBWR", "NCCL_ALGO", "NCCL_PROTO", "WORLD_SIZE"),
    "TORCHINDUCTOR_EMULATE_PRECISION_CASTS",
)  # fmt: skip


def environment() -> dict[str, str]:
    """Facts by name. *Cost:* a few milliseconds. Nothing is imported or initialized for it, and no process is started."""
    told: dict[str, str] = {}
    for name, value in (*_flags(), *_variables(), ("git commit", _commit()), *_packages()):
        if value not in (None, ""):
            told[name] = str(value)[:_MOST]
    return told


def _flags() -> Iterator[tuple[str, Any]]:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return
    read: dict[str, Callable[[], Any]] = {
        "threads": torch.get_num_threads,
        "threads between operations": torch.get_num_interop_threads,
        "seed": torch.initial_seed,
        "default dtype": torch.get_default_dtype,
        "deterministic algorithms": torch._C._get_deterministic_algorithms,
        "matmul precision": torch._C._get_float32_matmul_precision,
        "tf32 in matmuls": torch._C._get_cublas_allow_tf32,
        "tf32 in convolutions": torch._C._get_cudnn_allow_tf32,
        "cudnn benchmark": torch._C._get_cudnn_benchmark,
        "cudnn deterministic": torch._C._get_cudnn_deterministic,
        "float16 reductions in float16": torch._C._get_cublas_allow_fp16_reduced_precision_reduction,
        "bfloat16 reductions in bfloat16": torch._C._get_cublas_allow_bf16_reduced_precision_reduction,
        "CPU instructions": torch.backends.cpu.get_cpu_capability,
    }
    for name, value in read.items():
        try:
            yield name, value()
        except ours():  # another version of torch
            continue
    with suppress(Exception):
        if torch.cuda.is_initialized():
            for i in range(torch.cuda.device_count()):
                yield f"device {i}", torch.cuda.get_device_name(i)


def _variables() -> Iterator[tuple[str, Any]]:
    for name in _VARIABLES:
        yield name, os.environ.get(name)
    yield "launcher", next((launcher for launcher, name in _LAUNCHERS.items() if name in os.environ), None)


def _packages() -> Iterator[tuple[str, Any]]:
    """Versions of what is imported, as the packages themselves say. Lazy modules stay unloaded."""
    told = {}
    for name, module in list(sys.modules.items()):
        with suppress(Exception):  # whatever a script has put there
            if "." not in name and not name.startswith("_") and name not in sys.stdlib_module_names:
                version = object.__getattribute__(module, "__dict__").get("__version__")
                if isinstance(version, str):
                    told[name] = version
    for name in sorted(told)[:MOST_PACKAGES]:
        yield f"version of {name}", told[name]


def _commit() -> str | None:
    """The commit that is checked out where the script lies, read from git's own files."""
    main: Any = sys.modules.get("__main__")
    try:
        folder = os.path.dirname(os.path.abspath(main.__file__))
        while not os.path.exists(git := os.path.join(folder, ".git")):
            if folder == (folder := os.path.dirname(folder)):
                return None
        head = _read(os.path.join(git, "HEAD")).strip()  # of a work tree of another repository's, .git is a file: not known
        reference = head.removeprefix("ref: ")
        if reference == head:
            return _checked(head)
        if not re.fullmatch(r"refs(/(?!\.)[\w.+-]+)+", reference):  # of a stranger's repository
            return None
        try:
            return _checked(_read(os.path.join(git, *reference.split("/"))).strip())
        except FileNotFoundError:
            lines = _read(os.path.join(git, "packed-refs")).split("\n")
            return next((_checked(line.split()[0]) for line in lines if line.endswith(f" {reference}")), None)
    except ours(OSError, ValueError, AttributeError, TypeError):
        return None


def _read(path: str) -> str:
    """The first megabyte of a plain file: anything else might be endless. Raises: OSError."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{path} is no plain file")
        return file.read(1 << 20).decode(errors="replace")


def _checked(commit: str) -> str | None:
    return commit if re.fullmatch(r"[0-9a-f]{40,64}", commit) else None
