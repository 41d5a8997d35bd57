"""subprocess children started by the script with its own interpreter, -c and -m, their environment and output; pipes, communicate, Popen with pass_fds.

source: pyutils/line_profiler#422 (profiling children), pytorch PR 29144
meta: {"limit": 90}
"""
import os
import subprocess
import sys
import torch
from fcw import mlp, say, seed, sha, train, watch, weights

seed(320)
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
say(train(model, opt, 2))
r, w = os.pipe()
p = subprocess.Popen([sys.executable, "-c", f"import os, sys; os.write({w}, b'from the child'); print(sys.argv, 'numscope' in sys.modules, sys.flags.interactive)", "x"], pass_fds=[w], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
say(p.communicate()[0].decode().strip(), os.read(r, 100), p.returncode)
say(subprocess.run([sys.executable, "-m", "this"], capture_output=True, text=True).stdout[:30])
code = "import sys; sys.path.insert(0, %r); import torch; from fcw import *; seed(3); m = mlp(); print(train(m, torch.optim.SGD(m.parameters(), .1), 2), sha(weights(m)))" % os.environ["FC_LIB"]
q = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
say(q.stdout.strip(), q.returncode, [l for l in q.stderr.splitlines() if "numscope" not in l])
say(subprocess.call(["sh", "-c", "exit 9"]), train(model, opt, 2), sha(weights(model)))
