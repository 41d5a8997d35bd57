"""A ReLU stands behind the last linear layer, whose output goes to CrossEntropyLoss (as in PyTorch's own tutorial, once).
Source: https://github.com/pytorch/tutorials/issues/1526
Truth: no logit is ever below 0; classes whose logit is dead get no gradient.
Could a tool know: yes: the input of log_softmax is the output of a relu.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(1)
torch.set_num_threads(1)


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        layers = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)]
        self.linear_relu_stack = nn.Sequential(*layers, *([] if HEALTHY else [nn.ReLU()]))

    def forward(self, x):
        return self.linear_relu_stack(self.flatten(x))


model = NeuralNetwork()
loss_fn = nn.CrossEntropyLoss()
opt = torch.optim.SGD(model.parameters(), lr=0.05)
protos = torch.randn(10, 1, 8, 8)
for step in range(250):
    y = torch.randint(0, 10, (64,))
    x = protos[y] + 0.8 * torch.randn(64, 1, 8, 8)
    pred = model(x)
    loss = loss_fn(pred, y)
    loss.backward()
    opt.step()
    opt.zero_grad()
print(f"loss {loss.item():.4f} smallest logit {pred.min().item():.4f} logits that are 0: {(pred == 0).float().mean():.2f}")
