"""The guard on the gradients' norm (no step, gradients cleared) at the last batch of an epoch, a validation follows, training goes on; and at the very last batch."""
# PRELUDE
seed(116)
net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
watch(net)
opt = torch.optim.Adam(net.parameters(), 1e-2)
dropped = 0
for epoch in range(4):
    for i in range(5):
        o = net(torch.randn(8, 4))
        target = o.detach().clone() if i == 4 and epoch % 2 else torch.zeros_like(o)
        loss = ((o - target) ** 2).sum(1).sqrt().mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        if torch.isfinite(norm):
            opt.step()
        else:
            dropped += 1
        opt.zero_grad()
    net.eval()
    with torch.no_grad():
        v = net(torch.ones(4, 4)).pow(2).mean()
    net.train()
    print(epoch, dig(loss, norm, v))
print(dropped)
end(net, opt)
