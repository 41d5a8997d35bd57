"""Compiles the triton kernel for real devices on a machine that has none, and counts what came out. Needs triton.

observe = compiled("cuda:90", torch.bfloat16)
observe.loop   # instructions of the inner loop, by name
"""

from __future__ import annotations

import collections
import functools
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from numscope.summary import triton as kernel
from numscope.summary.native import CODES
from numscope.summary.triton_launch import TILE

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
DTYPES = (
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
)


@dataclass(frozen=True)
class Compiled:
    """One variant for one device.

    Attributes:
        registers: of a thread, 32 bits each.
        spilled: bytes of a thread in memory beside its registers.
        path: instructions of a thread for a tile of ordinary elements, in order; empty for AMD, for which triton ships no disassembler, and
            for fp8, whose tile is one load, so that special elements need no loop.
        elements: of a thread in a tile.
        text: the program in the device's assembler.
    """

    registers: int
    spilled: int
    path: tuple[str, ...]
    elements: int
    text: str

    @property
    def num_wide_loads(self) -> int:
        """Loads of 128 bits for a tile."""
        return sum(name.startswith("LDG") and ".128" in name for name in self.path)

    @property
    def per_element(self) -> float:
        """Instructions for an ordinary element."""
        return len(self.path) / self.elements

    @property
    def counts(self) -> dict[str, int]:
        """Instructions for a tile, by name without modifiers."""
        return dict(collections.Counter(name.partition(".")[0] for name in self.path).most_common())


@functools.cache
def compiled(
    target: str, *dtypes: torch.dtype, moments: bool = True, table: bool = False, strided: bool = False, vectors: bool = True
) -> Compiled:
    device = TARGETS[target]
    values = dict(KINDS=sum(1 << CODES[dtype] for dtype in dtypes), MOMENTS=moments, TABLE=table, STRIDED=strided, VECTORS=vectors)
    values |= dict(L=kernel.LANES, CHUNK=kernel.CHUNK, FLUSH=kernel.FLUSH, SAMPLE=kernel.SAMPLE, FOLD=kernel.FOLD)
    signature = {name: "constexpr" if name in values else "i64" for name in kernel.observe.arg_names}
    options = dict(num_warps=kernel.LANES // device.warp_size, enable_fp_fusion=True)
    cache = os.environ.get("TRITON_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"numscope-triton-{os.getuid()}"))
    with mock.patch.dict(os.environ, TRITON_CACHE_DIR=cache):
        found = triton.compile(ASTSource(kernel.observe, signature, values), target=device, options=options)
    elements = TILE[CODES[dtypes[0]]] // kernel.LANES
    if device.backend == "hip":
        text = found.asm["amdgcn"]
        facts = {name: int(count) for name, count in re.findall(r"\.(vgpr_count|private_segment_fixed_size):\s*(\d+)", text)}
        return Compiled(facts["vgpr_count"], facts["private_segment_fixed_size"], (), elements, text)
    tools = Path(triton.__file__).parent / "backends/nvidia/bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(found.asm["cubin"])
        file.flush()
        usage = subprocess.run([tools / "cuobjdump", "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
        text = subprocess.run([tools / "nvdisasm", "-c", file.name], capture_output=True, text=True, check=True).stdout
    registers, stack, local = (int(re.findall(rf"\b{name}:(\d+)", usage)[0]) for name in ("REG", "STACK", "LOCAL"))
    return Compiled(registers, stack + local, _ordinary_path(text), elements, text)


def _ordinary_path(text: str) -> tuple[str, ...]:
    """The instructions of one tile of ordinary elements.

    Of the two innermost loops with loads of 128 bits it is the one with more: the other is that over a tile with special elements.
    """
    code: list[str] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        label = re.match(r"\s*(\.L\w+):", line)
        if label:
            labels[label[1]] = len(code)
        elif line.rstrip().endswith(";") and not line.lstrip().startswith("."):
            code.append(re.sub(r"^\s*(/\*\w+\*/)?\s*", "", line).rstrip(" ;"))
    loops = []
    for at, instruction in enumerate(code):
        jump = re.search(r"\bBRA\b.*`\((\.L\w+)\)", instruction)
        if jump and labels[jump[1]] <= at and any("LDG" in one and ".128" in one for one in code[labels[jump[1]] : at]):
            loops.append((labels[jump[1]], at))
    innermost = [loop for loop in loops if not any(loop[0] <= other[0] and other[1] <= loop[1] and other != loop for other in loops)]
    if len(innermost) < 2:
        return ()
    first, last = max(innermost, key=lambda loop: sum("LDG" in one for one in code[loop[0] : loop[1]]))
    kept = code[first : last + 1]
    return tuple(re.sub(r"^@!?U?P\w+\s+", "", instruction).split()[0] for instruction in kept)
