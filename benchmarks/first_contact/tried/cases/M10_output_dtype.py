# shortest script of C20: a remedy said to make forward and backward finite; the loss is the script's
import torch
torch.manual_seed(2)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).half()
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
with torch.no_grad():
    model[0].weight[2] = 60000.0
opt.zero_grad()
loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 6).half()).float(), torch.full((8,), 0))
loss.backward()
opt.step()
