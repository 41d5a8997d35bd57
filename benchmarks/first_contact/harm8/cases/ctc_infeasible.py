# what: CTC with targets too long for their input: inf per sample, masked by hand; zero_infinity in training
# benign: yes
# PRELUDE
m = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5)); W(m); opt = torch.optim.Adam(m.parameters(), lr=.01)
for s in range(5):
    g = torch.Generator().manual_seed(s); x = torch.randn(6, 3, 8, generator=g); t = torch.randint(1, 5, (3, 5), generator=g); tl = torch.tensor([3, 5, 2]); il = torch.tensor([6, 4, 6])
    lp = m(x).log_softmax(-1); opt.zero_grad(); l = F.ctc_loss(lp, t, il, tl, zero_infinity=True); l.backward(); opt.step()
    with torch.no_grad(): per = F.ctc_loss(m(x).log_softmax(-1), t, il, tl, reduction="none"); ok = per.isfinite(); print(float(l.detach()).hex(), ok.tolist(), per[ok].mean().item().hex(), per.mean().item())
print(M(m), R())
