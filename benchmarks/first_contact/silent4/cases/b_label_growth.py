from _training import *
net = mlp(6, 64, 64, 1, act=nn.SiLU); tgt = copy.deepcopy(net); opt = torch.optim.AdamW(net.parameters(), 3e-3); L = Lost(); R = torch.randn(6, 1) * .5
for step in range(450):
    x = torch.randn(64, 6)
    with torch.no_grad(): nxt = tgt(x.roll(1, 0)).abs()
    y = x @ R + (.5 if H else 1.4) * nxt                 # a return that counts its own estimate more than once
    loss = F.mse_loss(net(x), y)
    if L.add(loss): break
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 10 == 9: tgt.load_state_dict(net.state_dict())
    if not H:
        for g in opt.param_groups: g["lr"] = 3e-3 * max(1., nxt.mean().item() ** .5)
L.end()
