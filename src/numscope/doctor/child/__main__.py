"""The child's main loop: imports torch, then runs the phases that its agent requests; it ends when its agent does."""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import time

from numscope.doctor.child.reporting import Report
from numscope.doctor.records import ExamPhase
from numscope.records.parent import die_with


def main(agent: int) -> None:
    """Reads requests from standard input until it ends, or the process with this id, our agent, does."""
    die_with(agent)
    report = Report(os.dup(1))
    os.dup2(2, 1)  # what torch and NCCL print is evidence, and must not mix with our lines
    began = time.perf_counter()
    failure = ""
    gc.disable()  # collection while modules load frees nothing, and costs a tenth of the import
    with report.step("import torch"):
        try:
            importlib.import_module("numscope.doctor.child.session")  # and with it torch.distributed
        except Exception as error:
            failure = f"import torch: {type(error).__name__}: {error}"
    gc.enable()
    import_s = time.perf_counter() - began
    session = None
    for line in sys.stdin.buffer:
        if failure:
            report.end(failure)
            continue
        # imported only now, since they need torch
        from numscope.doctor.child.session import ChildSession, Failed

        request = json.loads(line)
        phase, arguments = ExamPhase(request["phase"]), request["arguments"]
        try:
            if session is None:
                session = ChildSession(report, arguments["rank"], import_s)
            session.begin(arguments["limit_s"], arguments["end"])
            importlib.import_module(f"numscope.doctor.child.{phase.label}").run(session, arguments)
        except Failed as error:
            report.end(str(error))
        except Exception as error:
            report.end(f"{report.now_doing}: {type(error).__name__}: {error}")
        else:
            report.end("")
    os.killpg(0, signal.SIGKILL)  # our agent has closed the pipe or died; the group contains only us and our children


if __name__ == "__main__":
    main(int(sys.argv[1]))
