"""From navneet-nmk/pytorch-rl issue 2.
Wrong: the Q targets are r + gamma * max Q(s') at terminal states too.  Could know: no.
"""
import sys, copy, random, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
random.seed(0); torch.manual_seed(0); torch.set_num_threads(1)
N = 6    # a corridor: reward 1 at its right end
q = nn.Sequential(nn.Linear(N, 32), nn.ReLU(), nn.Linear(32, 2)); target = copy.deepcopy(q); opt = torch.optim.Adam(q.parameters(), 3e-3); buf = []; s = 0; eye = torch.eye(N)
for step in range(600):
    a = random.randrange(2) if random.random() < .4 else q(eye[s]).argmax().item()
    s2 = max(0, s + (1 if a else -1)); done = s2 == N - 1; buf.append((s, a, float(done), s2, float(done))); s = 0 if done else s2
    if step < 100: continue
    b = random.sample(buf, 32); S, A, R, S2, D = (torch.tensor(v) for v in zip(*b))
    with torch.no_grad(): y = R + .9 * target(eye[S2]).max(1).values * ((1 - D) if H else 1)
    loss = F.mse_loss(q(eye[S]).gather(1, A[:, None]).squeeze(1), y); opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: target.load_state_dict(q.state_dict())
    if step % 50 == 0: print(step, round(loss.item(), 5))
print("check: Q(last state before the end, right), true 1.0:", q(eye[N - 2])[1].item())
