"""Whole tensors written to files, in the safetensors format: JSON and the elements' bytes, nothing that runs when it is read."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import quote

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from numscope.records.files import replacing
from numscope.summary.unwrap import plain

FOLDER = "tensor_dumps"
LONGEST = 150  # characters of a file's name, before what follows the layer's

# Source: the safetensors format, https://github.com/huggingface/safetensors. Other dtypes are kept as bytes.
_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


class Dumps:
    """``<log_dir>/tensor_dumps/rank_<r>/iter_<step>/<layer>_<tensor>.safetensors``, a file a call: a step's further calls are ``…-2``.

    Args:
        log_dir: made where missing, when the first tensor comes.
        rank: this process's.

    *Cost:* a copy of the tensor to the host and its bytes to the disk, at once: it is for a few layers and steps.
    """

    def __init__(self, log_dir: str | os.PathLike[str], rank: int) -> None:
        self._folder = os.path.join(log_dir, FOLDER, f"rank_{rank}")
        self._step = -1
        self._counts: dict[str, int] = {}  # of the step, by file's name

    def write(self, step: int, layer: str, tensor: str, parts: Mapping[str, Tensor], about: Mapping[str, str]) -> str:
        """Write one file; it is there whole or not at all.

        Args:
            layer, tensor: names, which may hold anything.
            parts: tensors by name.
            about: what else the file says, in words.

        Returns: its path.

        Raises: OSError.
        """
        if step != self._step:
            self._step = step
            self._counts.clear()
        name = file_name(layer, tensor)
        count = self._counts[name] = self._counts.get(name, 0) + 1
        folder = os.path.join(self._folder, f"iter_{step:06d}")
        path = os.path.join(folder, f"{name}{f'-{count}' if count > 1 else ''}.safetensors")
        os.makedirs(folder, exist_ok=True)
        with replacing(path) as aside, open(aside, "wb") as file:
            write_safetensors(file, parts, {"layer": layer, "tensor": tensor, "step": str(step), **about})
        return path


def file_name(layer: str, tensor: str) -> str:
    """A name that any file system takes and that no other layer and tensor have."""
    name = quote(layer, safe="[]")
    if len(name) > LONGEST:
        name = f"{name[:LONGEST]}~{sha256(layer.encode()).hexdigest()[:12]}"
    return f"{name}_{quote(tensor, safe='[]')}"


def write_safetensors(file: object, parts: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
    """Tensors and words as a safetensors file.

    Args:
        file: opened for writing bytes.
        parts: of any device, dtype and layout.
        about: goes into the file's metadata, with the dtype of what is kept as bytes.
    """
    write = file.write  # type: ignore[attr-defined]
    header: dict[str, object] = {}
    words = dict(about)
    stored: list[Tensor] = []
    end = 0
    with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
        for name, tensor in parts.items():
            whole = plain(tensor.detach())
            whole = (whole.to_dense() if whole.layout is not torch.strided else whole).cpu().resolve_conj().resolve_neg().contiguous()
            known = _NAMES.get(whole.dtype)
            if known is None:
                words[f"{name}.dtype"] = str(whole.dtype).removeprefix("torch.")
                whole = whole.reshape(*whole.shape, 1).view(torch.uint8) if whole.dim() else whole.reshape(1).view(torch.uint8)
            begin, end = end, end + whole.numel() * whole.element_size()
            header[name] = {"dtype": known or "U8", "shape": list(whole.shape), "data_offsets": [begin, end]}
            stored.append(whole)
        text = json.dumps({"__metadata__": words, **header}).encode()
        text += b" " * (-len(text) % 8)  # so that elements are aligned where the file is mapped
        write(len(text).to_bytes(8, "little"))
        write(text)
        for whole in stored:
            nbytes = whole.numel() * whole.element_size()
            if nbytes:
                write((ctypes.c_char * nbytes).from_address(whole.data_ptr()))
