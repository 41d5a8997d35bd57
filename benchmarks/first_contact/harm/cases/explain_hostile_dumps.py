"""Flight-recorder dumps that are pickles with calls, compressed bombs, endless lines and escape codes given to `doctor explain`.

source: Python's pickle warning (public), NCCL logs in NVIDIA/nccl issues for the format; own arrangement
truth: docs/promises.md: only opcodes of plain values exist; 32 MiB; 256 MiB a log, 4096 characters a line
meta: {"kind": "tool", "limit": 250}
"""
import gzip
import io
import os
import pickle
from pathlib import Path
from fctool import children_peak_mib, done, sane, say, tool


class Run:
    def __reduce__(self):
        return os.system, ("touch ran",)


class Deep:
    pass


nest = []
for _ in range(500):
    nest = [nest]
memo = b"\x80\x04" + b"]" + b"\x94" + b"".join(b"(h\x00h\x00e" for _ in range(10))
files = {
    "nccl_trace_rank_0": pickle.dumps({"entries": [Run()], "version": "2.4"}),
    "nccl_trace_rank_1": pickle.dumps({"version": "2.4", "entries": nest}),
    "nccl_trace_rank_2": b"\x80\x04" + b"\x8e" + (1 << 62).to_bytes(8, "little") + b"x.",
    "nccl_trace_rank_3": memo + b".",
    "nccl_trace_rank_4": b"cposix\nsystem\n(S'touch ran2'\ntR.",
    "nccl_trace_rank_5": gzip.compress(bytes(400 << 20), 9),
    "nccl_trace_rank_6": b'{"entries": ' + b"[" * 100000,
    "nccl_trace_rank_7": pickle.dumps({"version": "2.4\x1b[2J", "pg_config": {"\x1b]0;x\x07": {}}, "entries": [{"profiling_name": "nccl:all_reduce\x1b[31m", "collective_seq_id": -1, "state": "scheduled", "input_sizes": [[10**30]], "frames": []}] * 50}),
}
for name, data in files.items():
    Path(name).write_bytes(data)
Path("job.log").write_bytes(b"host:1:1 [0] NCCL INFO \x1b[2Jhello\n" + b"x" * 5_000_000 + b"\n" + b"NCCL WARN " + b"(" * 50000 + b"\n[rank0]: RuntimeError: \x1b]8;;file:///etc/passwd\x1b\\click\n")
Path("bomb.log.gz").write_bytes(gzip.compress(b"NCCL INFO aaaaaaaa\n" * (16 << 20), 9))
for name in [*files, "job.log", "bomb.log.gz"]:
    sane(tool("doctor", "explain", name, timeout=90), f"explain {name}", statuses=(0, 1, 2, 3, 4), limit=80)
sane(tool("doctor", "explain", *files, "job.log", timeout=120), "explain all", statuses=(0, 1, 2, 3, 4), limit=110)
say(not Path("ran").exists() and not Path("ran2").exists(), "no pickle was carried out")
say(children_peak_mib() < 2500, "no command took more than 2.5 GiB", children_peak_mib())
done()
