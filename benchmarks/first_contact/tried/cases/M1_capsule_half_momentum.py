# shortest script of E08, E09: is there a capsule of an add_ that leaves float16?
import torch
p = torch.nn.Linear(1, 1, bias=False).half()
opt = torch.optim.SGD(p.parameters(), lr=1e-8, momentum=0.99)
for step in range(5):
    p.zero_grad()
    p(torch.full((1, 1), 30000.0).half()).float().sum().backward()
    opt.step()
