from _training import *
net = nn.Sequential(nn.Embedding(50, 64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 50)).to(torch.bfloat16)
def init(m):
    if hasattr(m, "weight"):
        nn.init.normal_(m.weight if H else m.weight.float(), std=.02)
net.apply(init); s0 = net[0].weight.float().std().item()
opt = torch.optim.AdamW(net.parameters(), 3e-3)
for step in range(200):
    x = torch.randint(50, (64,)); loss = F.cross_entropy(net(x).float(), (x * 3 + 1) % 50); opt.zero_grad(); loss.backward(); opt.step()
truth(embedding_std_at_start=s0, loss=loss.item())
