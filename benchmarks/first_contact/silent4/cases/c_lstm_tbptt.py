from _training import *
l, o = nn.LSTM(1, 32, 2, batch_first=True, dropout=.1), nn.Linear(32, 1); opt = torch.optim.RMSprop([*l.parameters(), *o.parameters()], 1e-3); st = None; ph = torch.rand(16, 1) * 6; t0 = 0; e = []
for step in range(900):
    t = torch.arange(t0, t0 + 21)[None] * .2; s = (t + ph).sin() + .3 * (2.3 * t + ph).sin(); t0 += 20
    if step % 100 == 0: st = None
    out, st = l(s[:, :-1, None], st); st = tuple(v.detach() for v in st); loss = F.mse_loss(o(out).squeeze(-1), s[:, 1:]); opt.zero_grad(); loss.backward(); nn.utils.clip_grad_value_(l.parameters(), .5); opt.step(); e.append(loss.item())
truth(first=e[0], last=sum(e[-30:]) / 30)
