"""Writing through .data, Tensor.set_, swap_tensors, module.to(dtype) in mid-run, parameters replaced, shared and tied storages.

source: Lightning-AI/pytorch-lightning PR 21717, pytorch/pytorch#155322
"""
import torch
from torch import nn
from fcw import grads, mlp, rng, say, seed, sha, train, watch, weights

seed(50)
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
say(train(model, opt, 2))
model[0].weight.data = model[0].weight.data.clone().mul_(0.5)
model[2].weight.data.copy_(torch.eye(16))
model[4].bias.data.copy_(torch.arange(4.0))
say(train(model, opt, 2), model[0].weight.data_ptr() != 0)
model.double()
opt = torch.optim.SGD(model.parameters(), 0.1)
for i in range(2):
    loss = model(torch.randn(3, 8, dtype=torch.float64)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    say(loss.item().hex())
del loss
model.float()
torch.__future__.set_swap_module_params_on_conversion(True)
model.to(torch.float64).to(torch.float32)
torch.__future__.set_swap_module_params_on_conversion(False)
opt = torch.optim.SGD(model.parameters(), 0.1)
say(train(model, opt, 2))
a, b = torch.ones(3), torch.zeros(5)
torch.utils.swap_tensors(a, b)
model[2] = nn.Linear(16, 16, bias=False)
model[2].weight = nn.Parameter(torch.eye(16) * 0.3)
model.register_parameter("tied", model[0].weight)
opt = torch.optim.SGD(model.parameters(), 0.1)
say(train(model, opt, 2), model.tied is model[0].weight, sum(1 for _ in model.parameters()), a.shape)
lazy = nn.Sequential(nn.LazyLinear(6), nn.LazyBatchNorm1d(), nn.Linear(6, 2))
watch(lazy)
say(sha(lazy(torch.ones(3, 5))), type(lazy[0]).__name__, sha(weights(lazy)))
say(sha(weights(model), grads(model)), rng())
