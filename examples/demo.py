"""What ``./dev demo`` runs: a training script that overflows by itself, under ``numscope run``, and what to make of the report."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("train_t5.py")
FOLDER = "runs/demo"

BEFORE = f"""\
A small T5 learns Python's manual in float16. The script is an ordinary one and knows nothing of numscope; nothing bad is planted in it.
Its learning rate is too high: the loss falls, the values inside grow unseen, and after a hundred steps or so float16 can't hold them.

    $ numscope run --log-dir {FOLDER} examples/train_t5.py
"""

STOPPED = """
What happened: dozens of steps ahead, an alert said which tensor would leave float16's range. Then numscope stopped the run (exit status
3) before the optimizer could put the first bad step into the weights. Without it the loss would read nan from the next step on, with
nothing to say where that began. The report above names the tensor that went bad first, the operation and the line that made it, why, and
the remedy. Up to there, the run computed what it always computes.

What to do next:
  * Believe the reason: with a lower learning rate the same script runs through (numscope run examples/train_t5.py --lr 0.003).
  * Or give the numbers room: train in bfloat16, whose range is float32's, or let the layers that overflow compute in float32
    (numscope.high_precision).
  * Then your own script: put "numscope run" where "python" stood. numscope run --help shows the options.
"""

LOOK = """\
How the numbers grew until then, as a page to look at in a browser:

    {link}
"""

RAN_THROUGH = """
The run ended with exit status {status}, expected 3: this script overflowed wherever it was tried. Please report the output above.
"""


def main() -> int:
    print(BEFORE, flush=True)
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}  # the model is built from a config: nothing is to be fetched
    shutil.rmtree(FOLDER, ignore_errors=True)
    done = subprocess.run([sys.executable, "-m", "numscope", "run", "--log-dir", FOLDER, SCRIPT.relative_to(Path.cwd())], env=env)
    if done.returncode != 3:
        print(RAN_THROUGH.format(status=done.returncode))
        return 1
    print(STOPPED)
    print(LOOK.format(link=Path(FOLDER, "report.html").absolute().as_uri()))
    return 0


if __name__ == "__main__":
    os.chdir(SCRIPT.parent.parent)  # so that the command shown is the command run
    sys.exit(main())
