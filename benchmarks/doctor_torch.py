"""What torch's own ``init_process_group`` and one ``all_reduce`` say of the faults that the doctor's tests inject, and after how long.

    python benchmarks/doctor_torch.py        as root, on Linux; writes benchmarks/results/doctor_torch.json

A script like the widespread one runs on each host: it meets the others with a timeout of 6 s, reduces one element, prints that it is OK.
What still runs after 60 s is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.doctor import netns  # noqa: E402
from tests.doctor.expected import FAULTS, PORT, Fault  # noqa: E402

TIMEOUT_S, BOUND_S = 6, 60.0
SCRIPT = """
import atexit, datetime, os, sys, time
import torch, torch.distributed as dist
started = time.monotonic()
atexit.register(lambda: print(f"seconds={time.monotonic() - started:.0f}", file=sys.stderr, flush=True))
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
if len(sys.argv) > 1:
    os.system(sys.argv[1])
x = torch.ones(1)
dist.all_reduce(x)
dist.barrier()
print(f"[{os.environ['RANK']}] is OK")
"""


def examine(fault: Fault) -> str:
    """What the hosts' processes said, in a sentence."""
    with netns.Network(fault.num_hosts) as network, contextlib.ExitStack() as stack:
        fault.inject(network, stack)
        processes, numbers = [], []
        for number, host in enumerate(network.hosts):
            if number in fault.absent:
                continue
            environment = {"RANK": str(number), "WORLD_SIZE": str(fault.num_hosts), "MASTER_ADDR": "node0", "MASTER_PORT": str(PORT)}
            environment |= {"TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1", **fault.environment.get(number, {})}
            during = [fault.during[number][1]] if number in fault.during else []
            processes.append(network.start(host, sys.executable, "-c", SCRIPT, *during, environment=environment))
            numbers.append(number)
        awaited = [(number, process) for number, process in zip(numbers, processes, strict=True) if number not in fault.stopped]
        ends = netns.wait([process for _, process in awaited], BOUND_S)
    said: dict[str, list[str]] = {}
    for (number, _), end in zip(awaited, ends, strict=True):
        seconds = re.search(r"^seconds=(\d+)$", end.stderr, re.M)
        said.setdefault(_last_words(end), []).append(f"{number} ({seconds[1]} s)" if seconds else str(number))
    return "; ".join(f"rank {', '.join(ranks)}: {words}" for words, ranks in said.items())


def _last_words(end: netns.Ended) -> str:
    if end.code is None:
        return f"**hangs past {BOUND_S:.0f} s**"
    if end.code == 0:
        return "OK"
    text = re.sub(r"^\[rank\d+\]: ?", "", end.stderr, flags=re.M)
    text = re.sub(r"^seconds=\d+$|\. This is typically.*", "", text, flags=re.M)
    lines = [line for line in text.splitlines() if re.match(r"[\w.]*(Error|Exception|Timeout)\b.*:", line)]
    words = (lines or [line for line in text.splitlines() if line.strip()] or [f"ended by signal {-end.code}"])[-1]
    words = re.sub(r"\[?/[\w./-]+/([\w.]+:\d+)\]?", r"\1", words).removeprefix("torch.distributed.")
    words = words if len(words) <= 200 else words[:200] + "…"
    return f"`{words.replace('|', '/').replace('`', chr(39))}`"


def main() -> None:
    if netns.missing():
        raise SystemExit(netns.missing())
    import torch

    chosen = [fault for fault in FAULTS if fault.of_network and fault.finding]
    with ThreadPoolExecutor(2) as pool:
        faults = dict(zip((fault.name for fault in chosen), pool.map(examine, chosen), strict=True))
    about = (
        f"Torch's errors are those of torch {torch.__version__.partition('+')[0]}, gloo, `init_process_group` with a timeout of "
        f"{TIMEOUT_S} s and one `all_reduce`, for the same fault between the same hosts (benchmarks/doctor_torch.py). Its seconds "
        f"count from the call; it was killed {BOUND_S:.0f} s after its start. Faults that strike in a phase were injected "
        "between the two calls."
    )
    path = ROOT / "benchmarks" / "results" / "doctor_torch.json"
    path.write_text(json.dumps({"about": about, "faults": faults}, indent=1) + "\n", encoding="utf-8")
    for name, words in faults.items():
        print(f"{name}\n    {words}")


if __name__ == "__main__":
    os.environ.pop("RANK", None)
    main()
