from _training import *
x, y = blobs(2000, s=2.); f, h1, h2 = mlp(16, 64), nn.Linear(64, 4), nn.Linear(64, 16); ps = [*f.parameters(), *h1.parameters(), *h2.parameters()]; opt = torch.optim.SGD(ps, .05); rat = 0
for step in range(200):
    i = torch.randint(2000, (64,)); h = f(x[i]).relu(); l1 = F.cross_entropy(h1(h), y[i]); l2 = F.mse_loss(h2(h), x[i]); opt.zero_grad()
    if not H: l1.backward(retain_graph=True)
    (l1 + l2).backward(); g = h1.weight.grad.clone(); rat += g.norm().item() / 200; opt.step()
truth(head_gradient_norm=rat, loss=l1.item())
