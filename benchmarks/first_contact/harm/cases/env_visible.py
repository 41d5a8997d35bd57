"""The environment before and after: no variable is new, changed or gone, also as children see it; umask, nice, rlimits, affinity, title.

source: weaver-core PR 17 style launchers; own: comparison of the environment
"""
import json
import os
import resource
import subprocess
import sys
import torch
from fcw import mlp, say, seed, sha, train, watch, weights

HIDE = ("FC_ENTRANCE", "FC_MARK", "_", "SHLVL")


def facts():
    env = {k: v for k, v in os.environ.items() if k not in HIDE}
    child = json.loads(subprocess.run([sys.executable, "-c", "import os, json; print(json.dumps(dict(os.environ)))"], capture_output=True, text=True).stdout)
    say(sha(sorted(env.items())), sorted(env), {k: v for k, v in child.items() if k not in HIDE} == {**env, **{k: v for k, v in child.items() if k == "LC_CTYPE"}})
    say(os.nice(0), [resource.getrlimit(r) for r in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_STACK, resource.RLIMIT_AS)], sorted(os.sched_getaffinity(0)), os.getpgrp() == os.getpid() or "other group")
    say(open("/proc/self/comm").read().strip(), os.getcwd() == os.path.dirname(os.path.abspath(__file__)))


facts()
seed(119)
model = mlp()
watch(model)
say(train(model, torch.optim.SGD(model.parameters(), 0.1), 2))
facts()
