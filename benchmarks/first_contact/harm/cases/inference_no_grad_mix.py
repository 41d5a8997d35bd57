"""Evaluation between steps: inference_mode, no_grad, set_grad_enabled as decorator, requires_grad toggled, eval/train; errors of inference tensors.

source: Lightning validation loops; pytorch/pytorch#38228
meta: {"compare": ["status", "stdout", "files", "left", "tmp"]}
"""
import torch
from torch import nn
from fcw import grads, mlp, rng, say, seed, sha, train, watch, weights

seed(317)
model = nn.Sequential(mlp(), nn.Dropout(0.3), nn.BatchNorm1d(4))
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)


@torch.set_grad_enabled(False)
def check():
    return sha(model(torch.ones(3, 8))), torch.is_grad_enabled()


for part in range(3):
    say(train(model, opt, 2))
    model.eval()
    with torch.inference_mode():
        y = model(torch.ones(2, 8))
        say(y.is_inference(), sha(y), torch.is_inference_mode_enabled())
    try:
        (y * torch.ones(2, 4, requires_grad=True)).sum().backward()
        say("no error")
    except RuntimeError as e:
        say(str(e)[:60])
    say(check(), torch.is_grad_enabled())
    model.train()
    with torch.no_grad():
        model(torch.randn(4, 8))
        with torch.enable_grad():
            loss = model(torch.randn(4, 8)).square().mean()
    model.requires_grad_(False)
    model[0][4].requires_grad_(True)
    loss2 = model(torch.randn(4, 8)).square().mean()
    loss2.backward()
    say(sha(grads(model)), loss.requires_grad)
    model.requires_grad_(True)
    opt.zero_grad()
    loss.backward()
    opt.step()
say(sha(weights(model)), rng())
