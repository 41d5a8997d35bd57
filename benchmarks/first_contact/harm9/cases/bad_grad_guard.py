"""A batch whose gradient is nan (sqrt at 0) with a finite loss; the script looks at the norm that clip_grad_norm_ returns and drops the step."""
# PRELUDE
seed(9)
net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
watch(net)
opt = torch.optim.Adam(net.parameters(), 1e-2)
dropped = 0
for step in range(30):
    x = torch.randn(8, 4)
    o = net(x)
    target = o.detach().clone() if step % 9 == 4 else torch.zeros_like(o)
    loss = ((o - target) ** 2).sum(1).sqrt().mean()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    if torch.isfinite(norm):
        opt.step()
    else:
        dropped += 1
    opt.zero_grad(set_to_none=step % 2 == 0)
    print(step, dig(loss, norm))
print(dropped)
end(net, opt)
