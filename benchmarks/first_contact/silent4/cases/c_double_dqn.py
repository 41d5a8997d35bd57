from _training import *
q = mlp(2, 64, 64, 2); t = copy.deepcopy(q); opt = torch.optim.Adam(q.parameters(), 1e-3); buf = []; s = torch.zeros(2); R = 0.; rs = []; n = 0
for step in range(1600):
    eps = max(.05, 1 - step / 800); a = random.randrange(2) if random.random() < eps else q(s).argmax().item()
    v = (s[1] + (.1 if a else -.1)).clamp(-.5, .5); p = (s[0] + v).clamp(-1, 1); s2 = torch.stack([p, v]); r = float(p > .8); n += 1; done = r > 0 or n >= 40
    buf.append((s, a, r, s2, float(r > 0))); s = s2
    if done: rs.append(r); s = torch.zeros(2); n = 0
    if step < 100: continue
    b = random.sample(buf[-3000:], 32); S, A, Rw, S2, Dn = (torch.stack([torch.as_tensor(x[k]) for x in b]) for k in range(5))
    with torch.no_grad(): y = Rw + .97 * (1 - Dn) * t(S2).gather(1, q(S2).argmax(1, keepdim=True)).squeeze(1)
    l = F.smooth_l1_loss(q(S).gather(1, A[:, None]).squeeze(1), y.float()); opt.zero_grad(); l.backward(); nn.utils.clip_grad_norm_(q.parameters(), 10.); opt.step()
    if step % 100 == 0: t.load_state_dict(q.state_dict())
truth(late_return=sum(rs[-10:]) / 10)
