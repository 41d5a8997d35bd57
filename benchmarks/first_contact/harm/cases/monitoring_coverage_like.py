"""A line coverage of the script by a trace function and by the trace module: the counts of the script's own lines.

source: pytorch/pytorch PR 191997 (coverage.py loses its tracer)
"""
import sys
import torch
from torch import nn
from fcw import mlp, say, seed, sha, train, watch, weights

seed(109)
LINES = {}


def tracer(frame, event, arg):
    if frame.f_code.co_filename != __file__:
        return None
    if event == "line":
        n = frame.f_lineno - frame.f_code.co_firstlineno
        LINES[frame.f_code.co_name, n] = LINES.get((frame.f_code.co_name, n), 0) + 1
    return tracer


class Branchy(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.n = nn.Linear(8, 4), 0

    def forward(self, x):
        self.n += 1
        if self.n % 2:
            x = x * 2
        else:
            x = x + 1
        return self.l(x)


def main():
    model = Branchy()
    watch(model)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    for i in range(4):
        train(model, opt, 1)
    say(model.n, sha(weights(model)))


sys.settrace(tracer)
main()
sys.settrace(None)
say(sorted(LINES.items()))
