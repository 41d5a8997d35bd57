"""Batch-hard triplet loss with sqrt of squared distances; a duplicate image makes a distance 0.
Source: huggingface/sentence-transformers#4033, tensorflow/tensorflow#30199."""
import sys
import torch
import torchvision
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = torchvision.models.squeezenet1_1(num_classes=8)
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
net.eval()


def batch_hard(emb, margin=0.3):
    anchor, pos, neg = emb.chunk(3)
    square_p = (anchor - pos).pow(2).sum(1)
    square_n = (anchor - neg).pow(2).sum(1)
    if CURED:
        square_p = square_p.clamp(min=1e-12)
    d_p = torch.sqrt(square_p)  # FAULT
    d_n = torch.sqrt(square_n + 1e-12)
    return (d_p - d_n + margin).clamp(min=0).mean()


for step in range(4):
    images = torch.randn(6, 3, 64, 64)
    if step == 2:
        images[2] = images[0]
    loss = batch_hard(net(images))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
