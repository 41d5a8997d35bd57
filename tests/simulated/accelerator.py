"""Builds the simulated accelerator once and makes it torch's device ``simulated``, for the rest of the process.

Its memory can't be read by the host, its copies to pinned memory come late, and whatever makes the host wait is counted (``device.cpp``).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import torch

from numscope.summary import device_batch, native

SOURCE = Path(__file__).with_name("device.cpp")
COMPILER = shutil.which(os.environ.get("CXX", "g++"))
WHY_NOT = "the simulated accelerator needs a C++ compiler (g++, or the one that CXX names)"


def build() -> Path:
    """The compiled device; kept for each text of its source and each torch."""
    assert COMPILER is not None, WHY_NOT
    text = SOURCE.read_bytes() + torch.__version__.encode()
    library = Path(tempfile.gettempdir()) / f"numscope-simulated-{os.getuid()}-{hashlib.sha256(text).hexdigest()[:16]}.so"
    if not library.exists():
        folder = Path(torch.__file__).parent
        part = library.with_suffix(f".{os.getpid()}")
        command = [COMPILER, "-O0", "-std=c++20", "-shared", "-fPIC", "-w", f"-I{folder}/include", str(SOURCE), "-o", str(part)]
        subprocess.run([*command, f"-L{folder}/lib", "-ltorch", "-ltorch_cpu", "-lc10"], check=True)
        part.rename(library)
    return library


class _Device:
    """``torch.simulated.device``."""

    def __init__(self, device: Any) -> None:
        self._index = device if isinstance(device, int) else torch.device(device).index or 0

    def __enter__(self) -> None:
        self._before = _library.simulated_device()
        _library.simulated_set_device(self._index)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _library.simulated_set_device(self._before)


class _Torch(ModuleType):
    """``torch.simulated``."""

    device = _Device

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        return 2

    def current_device(self) -> int:
        return int(_library.simulated_device())

    def set_device(self, device: Any) -> None:
        _library.simulated_set_device(torch.device(device).index or 0)

    def manual_seed_all(self, seed: int) -> None:
        """Its generator is the CPU's."""

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


_library = ctypes.CDLL(str(build()))
_library.simulated_own_view.restype = ctypes.c_size_t
_library.simulated_own_view.argtypes = [ctypes.c_size_t]
_library.simulated_memory.restype = _library.simulated_async_copies.restype = ctypes.c_int64
torch.utils.rename_privateuse1_backend("simulated")
torch._register_device_module("simulated", _Torch("torch.simulated"))
_library.simulated_begin()


def waits() -> list[str]:
    """What has made the host wait since the last call."""
    text = ctypes.create_string_buffer(1 << 20)
    length = _library.simulated_waits(text, 1 << 20)
    return text.raw[:length].decode().split("\n")[:-1]


def async_copies() -> int:
    """Copies to pinned memory since the last call."""
    return int(_library.simulated_async_copies())


def memory() -> int:
    """Bytes in use."""
    return int(_library.simulated_memory())


def own_view(address: int) -> int:
    """Where the device sees what tensors know by an address."""
    return int(_library.simulated_own_view(address))


launches: list[int] = []  # how many tensors each read


def use_kernel() -> None:
    """Give the device a kernel of its own, as CUDA has triton's: without it, torch's operations summarize."""
    assert native.module is not None

    def kernel(device: torch.device) -> Callable[[Sequence[device_batch.KernelInput], int], None]:
        def launch(found: Sequence[device_batch.KernelInput], groups: int) -> None:
            launches.append(len(found))
            for address, row, numel, code, *steps in found:
                if steps:
                    cols, row_stride, col_stride = steps
                    size = (8, 8, 2, 2, 1, 1, 1, 1)[code] if code else 4
                    for index in range(numel):
                        place = index // cols * row_stride + index % cols * col_stride
                        native.module.observe(own_view(address + place * size), 1, code, own_view(row), groups, 1)
                else:
                    native.module.observe(own_view(address), numel, code, own_view(row), groups, 1)

        return launch

    device_batch.KERNELS["simulated"] = kernel
