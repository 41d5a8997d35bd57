# As Lightning calls a wrapped model's training_step: set as the model's forward, through the wrapper's.
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)

    def training_step(self, batch, number):
        return torch.log(self(batch).square() - number).mean()  # FAULT


class Wrapper(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module, self.syncs = module, True

    def forward(self, *args):
        return self.module(*args)


def redirect(wrapper, model, *args):
    def once(*inner):
        model.forward = original
        try:
            return model.training_step(*inner)
        finally:
            wrapper.syncs = False

    original, model.forward = model.forward, once
    return wrapper(*args)


model = Model()
wrapper = Wrapper(model)
opt = torch.optim.SGD(model.parameters(), lr=0.001)
for number in range(0, 200, 100):
    loss = redirect(wrapper, model, torch.ones(2, 4), number)
    wrapper.syncs = True
    opt.zero_grad()
    loss.backward()
    try:
        opt.step()
    finally:
        assert wrapper.syncs
