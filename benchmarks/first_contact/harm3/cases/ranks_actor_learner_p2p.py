"""Rank 1 is an actor without gradients that sends rollouts, rank 0 a learner that sends weights back every second step; different models, numbers of calls and optimizers per rank; object lists and tags."""
# PRELUDE
import torch.distributed as dist

dist.init_process_group("gloo")
r = dist.get_rank()
pi = net(1, 4, 16, 2)
out = []
if r == 0:
    vf = net(2, 4, 16, 1)
    W(pi), W(vf)
    opt = torch.optim.Adam([*pi.parameters(), *vf.parameters()], 1e-2)
    for s in range(6):
        o, a, rew = torch.empty(8, 4), torch.empty(8, dtype=torch.long), torch.empty(8)
        for k, t in enumerate((o, a, rew)):
            dist.recv(t, 1, tag=k)
        adv = rew - vf(o).squeeze(-1)
        lp = torch.distributions.Categorical(logits=pi(o)).log_prob(a)
        loss = -(lp * adv.detach()).mean() + adv.square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item().hex())
        if s % 2:
            dist.send(torch.nn.utils.parameters_to_vector(pi.parameters()).detach(), 1)
else:
    W(pi)
    for s in range(6):
        with torch.no_grad():
            o = torch.randn(8, 4)
            a = torch.distributions.Categorical(logits=pi(o)).sample()
        for k, t in enumerate((o, a, (a == (o[:, 0] > 0)).float())):
            dist.send(t, 0, tag=k)
        if s % 2:
            v = torch.empty(sum(p.numel() for p in pi.parameters()))
            dist.recv(v, 0)
            with torch.no_grad():
                torch.nn.utils.vector_to_parameters(v, pi.parameters())
        out.append(int(a.sum()))
objs = [None, None]
dist.all_gather_object(objs, out)
with open(f"r{r}.txt", "w") as f:
    print(objs, H(dict(pi.state_dict())), R(), file=f)
dist.destroy_process_group()
