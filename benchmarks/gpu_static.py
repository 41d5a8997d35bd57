"""What the triton kernel costs on GPUs, computed from what it is compiled to; no GPU is needed, and nothing is measured.

    ./dev bench gpu_static

The kernel is compiled for each device. The instructions of a thread on the path of an ordinary tile and the bytes that it reads give two
limits: the rate at which the device's processors issue instructions, and its memory's bandwidth. Both are its maker's figures. The lower
one is what the kernel can reach at best; latencies, occupancy and cache misses are not in it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import torch  # noqa: E402
from _machine import describe, write  # noqa: E402

from tests.summary.compiled_kernel import compiled  # noqa: E402


@dataclass(frozen=True)
class Device:
    """Makers' figures: processors, their clock in GHz, bandwidth in TB/s."""

    target: str
    counted_on: str
    num_processors: int
    clock: float
    bandwidth: float
    lanes: int = 128  # threads whose next instruction a processor issues in a cycle
    float_lanes: int = 128  # of these for float32 arithmetic


DEVICES = {
    "A100 80GB": Device("sm_80", "sm_80", 108, 1.41, 2.04, float_lanes=64),
    "H100 SXM": Device("sm_90", "sm_90", 132, 1.755, 3.35),
    "B200": Device("sm_100", "sm_100", 148, 1.85, 8.0),
    "MI300X": Device("gfx942", "sm_90", 304, 2.1, 5.3, lanes=64, float_lanes=64),
}
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ARITHMETIC = ("FADD", "FMUL", "FFMA", "FADD2", "FMUL2", "FFMA2", "IMAD")  # on float32's lanes


def measure() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, device in DEVICES.items():
        for dtype in DTYPES:
            for moments in (False, True):
                own, counted = (compiled(target, dtype, moments=moments) for target in (device.target, device.counted_on))
                arithmetic = sum(counted.counts.get(kind, 0) for kind in ARITHMETIC) / counted.elements
                cycles = max(counted.per_element / device.lanes, arithmetic / device.float_lanes)
                issue = device.num_processors * device.clock * 1e9 / cycles * dtype.itemsize / 1e12
                rows.append(
                    {
                        "device": name,
                        "dtype": str(dtype).removeprefix("torch."),
                        "fields": "all" if moments else "health",
                        "registers": own.registers,
                        "spilled_bytes": own.spilled,
                        "instructions_per_element": round(counted.per_element, 1),
                        "counted_on": device.counted_on,
                        "bytes_per_element": dtype.itemsize,
                        "instruction_limit_TB_per_s": round(issue, 2),
                        "bandwidth_TB_per_s": device.bandwidth,
                        "bound_by": "memory" if issue >= device.bandwidth else "instructions",
                        "of_bandwidth_pct": round(100 * min(1.0, issue / device.bandwidth)),
                    }
                )
    return rows


def main() -> None:
    rows = measure()
    titles = list(rows[0])
    lines = [
        "**Computed, not measured** ([gpu.md](gpu.md) has what was). Instructions were counted in what triton's own assembler made, on",
        "the path of a tile of ordinary elements (finite, normal, not zero). No disassembler for AMD comes with triton, so that MI300X has",
        "registers of its own and H100's instructions. The limits follow from the makers' clocks, processors and bandwidths.",
        "",
        "| " + " | ".join(title.replace("_", " ") for title in titles) + " |",
        "|---" * len(titles) + "|",
        *("| " + " | ".join(str(row[title]) for title in titles) + " |" for row in rows),
    ]
    write("gpu_static", {"machine": describe(), "computed, not measured": True, "results": rows}, "The triton kernel, computed", lines)


if __name__ == "__main__":
    main()
