"""The working folder is deleted before and in mid-run; relative files, chdir elsewhere, getcwd's error is the script's own.

source: PrefectHQ/prefect PR 22765, hnicke/sodalite#192, geographika/mappyfile#182
"""
import os
import shutil
import torch
from fcw import mlp, say, seed, sha, train, watch, weights

seed(100)
home = os.getcwd()
os.mkdir("gone")
os.chdir("gone")
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
say(train(model, opt, 2))
os.rmdir(os.path.join(home, "gone"))
say(train(model, opt, 2))
try:
    os.getcwd()
except FileNotFoundError as e:
    say(type(e).__name__)
other = mlp()
watch(other)
say(train(other, torch.optim.Adam(other.parameters()), 3))
os.chdir(home)
torch.save(model.state_dict(), "w.pt")
os.mkdir("gone again")
os.chdir("gone again")
shutil.rmtree(os.path.join(home, "gone again"))
say(sha(weights(model), weights(other)))
