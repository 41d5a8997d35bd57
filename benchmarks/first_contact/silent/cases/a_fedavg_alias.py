"""Federated averaging: clients get the server's state_dict without a copy, so client 2 starts where client 1 ended.

Source: https://github.com/alibaba/FederatedScope/issues/664
Truth: the weights from which the second client starts are not the server's, compared at the end
Could a tool know: partly: a state that was handed out changes in place while another model trains
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

centers = torch.randn(6, 12)


def batch(client, n=32):
    y = torch.randint(0, 6, (n,)) if client is None else torch.randint(2 * client, 2 * client + 2, (n,))
    return centers[y] + torch.randn(n, 12), y


def net():
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 6))


server, local = net(), net()
off = 0.0
for rnd in range(10):
    message = server.state_dict()
    if HEALTHY:
        message = {k: v.clone() for k, v in message.items()}
    start = {k: v.clone() for k, v in message.items()}
    results = []
    for client in range(3):
        off = max(off, max((message[k] - start[k]).abs().max().item() for k in start))
        local.load_state_dict(message, assign=True)
        local.requires_grad_(True)
        if HEALTHY:
            local.load_state_dict({k: v.clone() for k, v in message.items()}, assign=True)
            local.requires_grad_(True)
        optimizer = torch.optim.SGD(local.parameters(), lr=0.05)
        for _ in range(15):
            x, y = batch(client)
            loss = F.cross_entropy(local(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        results.append({k: v.detach().clone() for k, v in local.state_dict().items()})
    server.load_state_dict({k: sum(r[k] for r in results) / 3 for k in start})
    x, y = batch(None, 300)
    print(rnd, "server's loss", round(F.cross_entropy(server(x), y).item(), 4))
print("end: clients started off by", round(off, 4))
