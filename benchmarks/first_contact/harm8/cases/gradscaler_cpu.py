# what: GradScaler("cpu") in float16 autocast with a huge first scale: inf gradients, skipped steps, two optimizers, unscale and clip, state saved
# benign: yes
# PRELUDE
model = net(h=32); W(model); o1, o2 = torch.optim.SGD(model[:2].parameters(), lr=.1), torch.optim.Adam(model[2:].parameters(), lr=.01); sc = torch.amp.GradScaler("cpu", init_scale=2. ** 24, growth_interval=3)
for s in range(14):
    x, y = batch(s); o1.zero_grad(); o2.zero_grad()
    with torch.autocast("cpu", torch.float16): l = F.mse_loss(model(x).float(), y)
    sc.scale(l).backward(); sc.unscale_(o1); n = nn.utils.clip_grad_norm_(model[:2].parameters(), 1.); sc.step(o1); sc.step(o2); sc.update(); print(float(l.detach()).hex(), sc.get_scale(), n.isfinite().item())
torch.save(sc.state_dict(), "scaler.pt"); print(sc.state_dict(), M(model), H(o2.state_dict()), R())
