from _training import *
cell, emb, o = nn.GRUCell(16, 64), nn.Embedding(8, 16), nn.Linear(64, 8); opt = torch.optim.Adam([*cell.parameters(), *emb.parameters(), *o.parameters()], 5e-3); ls = []
for step in range(250):
    x = torch.randint(8, (64, 6)); h = torch.zeros(64, 64)
    for t in range(6):
        h = cell(emb(x[:, t]), h if H else h.detach())
    loss = F.cross_entropy(o(h), x[:, 0]); opt.zero_grad(); loss.backward(); opt.step(); ls.append(loss.item())
truth(loss=sum(ls[-20:]) / 20)
