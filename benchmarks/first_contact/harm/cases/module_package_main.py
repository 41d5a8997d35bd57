"""python -m package, whose __main__.py imports the rest; run_module and run_path called by the script itself.

source: spack/spack PR 41789; python docs runpy
meta: {"setup": "mkdir -p app; cp module_package_main.py app/__main__.py; touch app/__init__.py; echo 'import torch; from fcw import mlp, train, say, seed; seed(1); m = mlp(); say(__name__, train(m, torch.optim.SGD(m.parameters(), .1), 2)); X = 5' > app/part.py", "script": ["-m", "app"]}
"""
import runpy
import sys
import torch
from fcw import mlp, say, seed, sha, train, watch, weights

seed(115)
model = mlp()
watch(model)
say(__name__, __package__, sys.argv[1:], train(model, torch.optim.SGD(model.parameters(), 0.1), 2))
say(runpy.run_module("app.part", run_name="other")["X"], runpy.run_module("app.part", run_name="__main__", alter_sys=True)["X"], runpy.run_path("app/part.py", {"Y": 1})["Y"])
say(sys.modules["__main__"].__name__, sys.argv[1:], sha(weights(model)))
