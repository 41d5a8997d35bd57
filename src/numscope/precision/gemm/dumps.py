"""Whole tensors written to safetensors files, which hold JSON and the elements' bytes: reading one runs no code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import quote

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from numscope.records.errors import UsageError
from numscope.records.files import write_atomically
from numscope.summary.unwrap import plain

FOLDER = "tensor_dumps"
LONGEST = 150  # characters of a layer's name within a file's name

# What every version of the format has; other dtypes are stored as bytes.
_STORED = frozenset(
    {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2}
    | {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool}
)


class Dumps:
    """``<log_dir>/tensor_dumps/rank_<r>/iter_<step>/<layer>_<tensor>.safetensors``, and ``…-2`` for the second call in a step.

    *Cost:* copies the tensor to the host and writes its bytes at once: meant for a few layers and steps.
    """

    def __init__(self, log_dir: str | os.PathLike[str], rank: int) -> None:
        self._folder = os.path.join(log_dir, FOLDER, f"rank_{rank}")
        self._step = -1
        self._counts: dict[str, int] = {}  # files of this step, by name

    def write(self, step: int, layer: str, tensor: str, parts: Mapping[str, Tensor], about: Mapping[str, str]) -> str:
        """Write one file, whole or not at all, and return its path.

        Names may contain any character; parts may have any device, dtype and layout. The metadata holds ``about``, the names, and the
        dtypes of tensors that are stored as bytes.

        Raises: UsageError where safetensors is not installed; OSError.
        """
        try:
            from safetensors.torch import save
        except ImportError:
            raise UsageError("safetensors is not installed, which writes tensors. Install it: pip install 'numscope[runs]'.") from None
        if step != self._step:
            self._step = step
            self._counts.clear()
        name = file_name(layer, tensor)
        count = self._counts[name] = self._counts.get(name, 0) + 1
        folder = os.path.join(self._folder, f"iter_{step:06d}")
        path = os.path.join(folder, f"{name}{f'-{count}' if count > 1 else ''}.safetensors")
        words = {"layer": layer, "tensor": tensor, "step": str(step), **about}
        with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
            stored = {part: _storable(part, plain(whole.detach()), words) for part, whole in parts.items()}
            data = save(stored, words)
        os.makedirs(folder, exist_ok=True)
        write_atomically(path, data)
        return path


def file_name(layer: str, tensor: str) -> str:
    """A name that every file system accepts and that belongs to this layer and tensor alone."""
    name = quote(layer, safe="[]")
    if len(name) > LONGEST:
        name = f"{name[:LONGEST]}~{sha256(layer.encode()).hexdigest()[:12]}"
    return f"{name}_{quote(tensor, safe='[]')}"


def _storable(name: str, x: Tensor, words: dict[str, str]) -> Tensor:
    """The tensor as the format takes it; adds its dtype to the words where it is stored as bytes."""
    x = (x.to_dense() if x.layout is not torch.strided else x).cpu().resolve_conj().resolve_neg().contiguous()
    if x.dtype in _STORED:
        return x
    words[f"{name}.dtype"] = str(x.dtype).removeprefix("torch.")
    return x.reshape(*x.shape, 1).view(torch.uint8)
