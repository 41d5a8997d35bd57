"""A run is resumed with the weights alone: Adam's moments and step count begin anew, at the full rate.

Source: https://github.com/kevinzakka/recurrent-visual-attention/issues/8 (and NVlabs/stylegan2-ada-pytorch#108)
Truth: the optimizer has no state at the resumed run's first step
Could a tool know: partly: trained weights and an optimizer without state; a new fine-tuning looks the same
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv
import io

centers = torch.randn(10, 20)


def batch(n=64):
    y = torch.randint(0, 10, (n,))
    return centers[y] + torch.randn(n, 20), y



def run(steps, checkpoint=None):
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    if checkpoint is not None:
        checkpoint.seek(0)
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        if HEALTHY:
            optimizer.load_state_dict(state["optimizer"])
    had = len(optimizer.state)
    for step in range(steps):
        x, y = batch()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, round(loss.item(), 4))
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    return file, had


checkpoint, _ = run(150)
_, had = run(150, checkpoint)
print("end: tensors with optimizer state when resumed", had)
