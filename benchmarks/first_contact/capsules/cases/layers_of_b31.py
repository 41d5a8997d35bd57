import torch


def entropy(p):
    q = torch.log(p)
    return -(p * q).sum(-1, keepdim=True)
