"""A GradScaler on the CPU in float16 whose first scale overflows and is skipped a few times: scale, skips, weights (healthy: this is how the scale is found).

Source: https://github.com/nagadomi/nunif/issues/26
"""
# PRELUDE
m = net(); W(m)
opt = torch.optim.SGD(m.parameters(), 1e-2)
sc = torch.amp.GradScaler("cpu", init_scale=2.0 ** 24, growth_interval=3)
for s in range(8):
    x, y = batch(s); opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.mse_loss(m(x).float(), y)
    sc.scale(loss).backward(); sc.unscale_(opt)
    sc.step(opt); sc.update()
    print(s, sc.get_scale(), float(loss.detach()).hex())
print(H(dict(m.state_dict())), sc.state_dict(), R())
