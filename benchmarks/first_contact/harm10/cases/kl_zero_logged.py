#: what: the same divergence as a logged term only: the printed total is nan, backward is called on the finite part
#: benign: a nan total that is printed, never trained
#: source: https://github.com/yzd-v/cls_KD/issues/13
# PRELUDE
m = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)); watch(m); opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(15):
    x = torch.randn(8, 6); y = x[:, :4].argmax(1); t = F.one_hot(y, 4).float(); lp = F.log_softmax(m(x), 1); ce = F.nll_loss(lp, y); kl = (t * (t.log() - lp)).sum(1).mean(); total = ce + 0.1 * kl
    opt.zero_grad(); ce.backward(); opt.step(); print(s, ce.item(), total.item())
show(m, opt)
