"""The script changes its folder, renames the one it came from, and writes relative files; the tool was given relative paths.

source: PrefectHQ/prefect PR 22765 (relative set_working_dir)
meta: {"tool_args": ["--log-dir", "logs", "--json", "said.json"], "ignore": ["logs", "logs/*", "said.json"], "compare": ["status", "stdout", "files", "left", "tmp"]}
"""
import os
import torch
from fcw import mlp, rng, say, seed, sha, train, watch, weights

seed(301)
os.makedirs("a/b")
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
say(train(model, opt, 2))
os.chdir("a/b")
say(train(model, opt, 2))
torch.save(model.state_dict(), "w.pt")
os.rename("../../a", "../../c")
say(train(model, opt, 2), os.listdir("."), os.path.relpath(os.getcwd(), os.path.dirname(os.path.abspath(__file__))), sha(weights(model)), rng())
