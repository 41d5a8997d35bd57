"""Launches the triton kernel: any number of tensors of one device at once, without a sync and, once warm, without allocating anything."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from numscope.summary import triton
from numscope.summary.state import ROW_WIDTH, Groups, KernelInput

PROGRAMS_EACH = (8, 4)  # programs that a processor holds at once, without and with moments: those take 64 and 128 registers on NVIDIA's
BATCH_WAVES = 4  # programs of a table, in multiples of what all processors can hold: tensors' shares differ in size
RECENT_TABLES = 16  # tables kept on the device; gradients and parameters mostly keep their addresses from step to step
TILE = (16 * triton.LANES, 4 * triton.LANES, *[16 * triton.LANES] * 6)  # elements, by code
_UNUSED = [[0] * (4 * (triton.SLOTS - used)) for used in range(triton.SLOTS + 1)]
_SIZES = triton.LANES, triton.CHUNK, triton.FLUSH, triton.SAMPLE, triton.FOLD


class Launcher:
    """The kernel on one device.

    Args:
        device: where all tensors are.
        num_processors: streaming multiprocessors or compute units.
        warp_size: threads that run together.
        stream: the number of the stream that the caller is on.
        is_capturing: whether that stream is being captured into a graph.

    *Cost:* about 3 µs on the host for up to 4 tensors; for more, 1 µs a tensor, and one small copy to the device if their addresses
    have changed.
    """

    def __init__(
        self, device: torch.device, num_processors: int, warp_size: int, stream: Callable[[], int], is_capturing: Callable[[], bool]
    ) -> None:
        self._device = device
        self._num_programs = [each * num_processors for each in PROGRAMS_EACH]
        self._num_warps = max(1, triton.LANES // warp_size)
        self._stream = stream
        self._is_capturing = is_capturing
        self._scratch: dict[int, tuple[Tensor, Tensor, int, int]] = {}  # by stream: partial rows, counters, addresses of both
        self._tables: dict[tuple[int, bytes], Tensor] = {}
        self._captured: list[Tensor] = []  # what graphs read when they are replayed
        self._compiled: dict[tuple[Any, ...], Any] = {}

    def __call__(self, inputs: Sequence[KernelInput], groups: int) -> None:
        """Merge the summaries of tensors with elements into their rows; raises before anything is written."""
        few = len(inputs) <= triton.SLOTS
        moments = bool(groups & Groups.MOMENTS)
        kinds, strided = 0, False
        counts: list[int] = []
        for entry in inputs:
            kinds |= 1 << entry[3]
            counts.append(-(-entry[2] // TILE[entry[3]]))
            strided = strided or len(entry) > 4
        total, each = sum(counts), 1
        capacity = self._num_programs[moments] * (1 if few else BATCH_WAVES)
        enough = self._num_programs[1]
        if total > enough:  # from there on a program reads more tiles, up to a chunk, before there are more programs: each adds to the fold
            each = max(-(-total // capacity), min(triton.CHUNK, -(-total // enough)))
            counts = [-(-entry[2] // (TILE[entry[3]] * each)) for entry in inputs]
            total = sum(counts)
        stream = self._stream()
        parts, counters = self._scratch_of(stream, total if total > len(inputs) else 0, len(inputs))
        if few and not strided:
            numbers = [0, 0, parts, counters, each]
            for entry in inputs:
                numbers += entry
            numbers += _UNUSED[len(inputs)]
            variant = kinds, moments, False, False, True
        else:
            table = self._table(stream, inputs, counts, strided)
            numbers = [table, table + len(inputs) * 64, parts, counters, each, *_UNUSED[0]]
            variant = kinds, moments, True, strided, not strided or all(map(_in_vectors, inputs))
        kernel = self._compiled.get(variant)
        if kernel is None:
            jit: Any = triton.observe
            self._compiled[variant] = jit[(total,)](*numbers, *variant, *_SIZES, num_warps=self._num_warps, enable_fp_fusion=True)
        else:
            kernel[(total, 1, 1)](*numbers, *variant, *_SIZES, stream=stream)

    def _scratch_of(self, stream: int, num_parts: int, num_counters: int) -> tuple[int, int]:
        """Addresses of partial rows and of counters that are zero. Each stream has its own, since launches on two may overlap."""
        known = self._scratch.get(stream)
        capturing = self._is_capturing()
        if known is None or known[0].shape[0] < num_parts or known[1].shape[0] < num_counters or capturing:
            num_parts, num_counters = max(num_parts, BATCH_WAVES * self._num_programs[0]), max(num_counters, 1024)
            parts = torch.empty((num_parts + num_counters, ROW_WIDTH), dtype=torch.float64, device=self._device)
            counters = torch.zeros(num_counters, dtype=torch.int32, device=self._device)
            known = parts, counters, parts.data_ptr(), counters.data_ptr()
            if capturing:  # in the graph's own memory; a replay may run beside launches of the same stream
                self._captured += parts, counters
            else:
                self._scratch[stream] = known
        return known[2], known[3]

    def _table(self, stream: int, inputs: Sequence[KernelInput], counts: Sequence[int], strided: bool) -> int:
        """The address of a table of tensors on the device, followed by the tensor of each program."""
        rows, programs, first = array("q"), array("q"), 0
        for index, (entry, count) in enumerate(zip(inputs, counts, strict=True)):
            rows.extend((*entry, first) if len(entry) > 4 else (*entry, entry[2], 0, 1, first))
            programs.extend([index] * count)
            first += count
        content = (rows + programs).tobytes()
        table = self._tables.get((stream, content))
        if table is None:
            host = torch.frombuffer(bytearray(content), dtype=torch.int64)
            if self._device.type == "cuda":  # a pageable copy waits for the device
                host = host.pin_memory()
            table = host.to(self._device, non_blocking=True)
            if self._is_capturing():
                self._captured += host, table
                return table.data_ptr()
            self._tables[stream, content] = table
            if len(self._tables) > RECENT_TABLES:
                del self._tables[next(iter(self._tables))]
        return table.data_ptr()


def _in_vectors(entry: KernelInput) -> bool:
    """Whether rows can be read 16 bytes at a time."""
    address, _, numel, kind, *steps = entry
    each = 16 // (4, 8, 2, 2, 1, 1, 1, 1)[kind]
    cols, row_stride, col_stride = steps or (numel, 0, 1)
    return not (address % 16 or numel % each or cols % each or row_stride % each) and col_stride == 1


def launcher_of(device: torch.device) -> Callable[[Sequence[KernelInput], int], None]:
    """The launcher of a CUDA or ROCm device."""
    facts: Any = torch.cuda.get_device_properties(device)
    index = device.index
    stream: Callable[[int], int] = torch._C._cuda_getCurrentRawStream
    capturing: Callable[[], bool] = torch._C._cuda_isCurrentStreamCapturing
    launch = Launcher(device, facts.multi_processor_count, getattr(facts, "warp_size", 32), lambda: stream(index), capturing)

    def launch_there(inputs: Sequence[KernelInput], groups: int) -> None:
        with contextlib.nullcontext() if torch.cuda.current_device() == index else torch.cuda.device(index):
            launch(inputs, groups)

    return launch_there
