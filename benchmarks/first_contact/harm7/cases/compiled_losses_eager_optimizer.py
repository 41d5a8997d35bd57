"""A loss and a metric compiled by aot_eager, an optimizer's step compiled, an eager model between them, in training, no_grad and autocast: results, recompilations, mutated inputs and versions must stay the same."""
# PRELUDE
import torch._dynamo as dynamo

graphs = []


def count(gm, ex):
    graphs.append(len(list(gm.graph.nodes)))
    return gm.forward


@torch.compile(backend="aot_eager")
def focal(z, y):
    p = z.log_softmax(1).gather(1, y[:, None]).squeeze(1)
    return (-(1 - p.exp()) ** 2 * p).mean()


@torch.compile(backend="aot_eager")
def update(buf, z):
    buf.mul_(0.9).add_(z.mean(0), alpha=0.1)
    q, r = torch.linalg.qr(z.T @ z + torch.eye(4))
    return buf * 1, r.diagonal().abs().log().sum()


@torch.compile(backend=count)
def metric(z, y):
    hit = z.argmax(1) == y
    return hit.float().mean(), (z.T @ z).diagonal().prod(), torch.cumprod(z.sigmoid(), 1).sum()


torch.manual_seed(0)
m = net(1)
W(m)
opt = torch.optim.AdamW(m.parameters(), torch.tensor(1e-2))
step = torch.compile(opt.step, backend="aot_eager")
buf = torch.zeros(4)
for s in range(6):
    x, _ = batch(s, 6 if s < 4 else 9)
    y = torch.arange(len(x)) % 4
    with torch.autocast("cpu", torch.bfloat16, enabled=s % 2 == 1):
        z = m(x)
    z = z.float()
    loss = focal(z, y)
    opt.zero_grad()
    loss.backward()
    step()
    with torch.no_grad():
        b, ld = update(buf, z)
        acc, pr, cp = metric(z, y)
    print(s, float(loss.detach()).hex(), loss.grad_fn.name().split("Backward")[0], H(b, ld), buf._version, acc.item(), H(pr), H(cp), M(m), [p._version for p in m.parameters()], H([v for st in opt.state.values() for v in st.values()]), R())
print(graphs, dynamo.utils.counters["stats"]["unique_graphs"], len(dynamo.utils.counters["graph_break"]))
