# a loaded optimizer state with a nan, weights and gradients finite
import torch
model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh())
opt = torch.optim.Adam(model.parameters())
model(torch.ones(3, 2)).sum().backward()
opt.step()
opt.state[model[0].weight]["exp_avg_sq"][3] = float("nan")
for step in range(2):
    opt.zero_grad()
    model(torch.ones(3, 2)).sum().backward()
    opt.step()
