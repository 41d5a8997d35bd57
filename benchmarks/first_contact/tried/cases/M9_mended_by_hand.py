# M8 with the remedy written in: are the weights finite after the step?
import torch
model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh())
opt = torch.optim.Adam(model.parameters())
model(torch.ones(3, 2)).sum().backward()
opt.step()
with torch.no_grad():
    model[0].weight[1] = float("nan")
    opt.state[model[0].weight]["exp_avg_sq"][[1, 3]] = float("nan")
    model[0].weight[1] = 0
    opt.state[model[0].weight]["exp_avg_sq"][1] = 0
for step in range(2):
    opt.zero_grad()
    model(torch.ones(3, 2)).sum().backward()
    opt.step()
    print("weights finite:", bool(model[0].weight.isfinite().all()))
