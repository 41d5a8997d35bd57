# source: siamese scripts with the loss outside: the model gives embeddings, the script's sqrt is at fault
# planted rows: 5 of 10, outside the model
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
model = nn.Linear(6, 4)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, b = torch.randn(10, 6), torch.randn(10, 6)
    if step == 2:
        b[5] = x[5]
    # BATCH 0: x, b
    loss = (model(x) - model(b)).pow(2).sum(-1).sqrt().mean()
    opt.zero_grad(); loss.backward(); opt.step()
