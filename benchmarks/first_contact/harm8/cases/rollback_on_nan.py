# what: backward of a bad loss is done, gradient norm is checked, the update is left out and the last good checkpoint reloaded
# benign: yes
# PRELUDE
model = net(); W(model); opt = torch.optim.Adam(model.parameters(), lr=.01)
s = 0; tries = 0
while s < 8:
    x, y = batch(s)
    if s == 4 and tries == 0: x = x * 1e38; tries += 1
    opt.zero_grad(); l = F.mse_loss(model(x), y * (1e30 if tries == 1 and s == 4 and x.abs().max() > 1e6 else 1)); l.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.)
    if not torch.isfinite(norm):
        print("rollback at", s, norm.item()); st = torch.load("good.pt"); model.load_state_dict(st["m"]); opt.load_state_dict(st["o"]); s = st["s"]; opt.zero_grad(set_to_none=True); continue
    opt.step(); s += 1
    torch.save({"m": model.state_dict(), "o": opt.state_dict(), "s": s}, "good.pt"); print(s, float(l.detach()).hex())
print(M(model), R())
