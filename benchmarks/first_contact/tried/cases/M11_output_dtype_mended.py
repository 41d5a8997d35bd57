# M10 with the remedy
import torch
import numscope
torch.manual_seed(2)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).half()
numscope.high_precision(model, output_dtype=torch.float32)
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
with torch.no_grad():
    model[0].weight[2] = 60000.0
opt.zero_grad()
loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 6).half()).float(), torch.full((8,), 0))
loss.backward()
print("loss", loss.item(), "gradients finite:", [bool(p.grad.isfinite().all()) for p in model.parameters()])
opt.step()
