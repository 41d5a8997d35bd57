"""Evolution strategies: a forked Pool evaluates perturbed parameters, rewards of nan (failed episodes) are dropped; then fine-tuning by gradients."""
# PRELUDE
import multiprocessing as mp
seed(47)
net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
theta = nn.utils.parameters_to_vector(net.parameters()).detach()


def episode(args):
    s, vec = args
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(s)
    n = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
    nn.utils.vector_to_parameters(torch.from_numpy(vec), n.parameters())
    with torch.no_grad():
        x = torch.randn(10, 4, generator=g)
        r = -(n(x) - x[:, :2]).pow(2).mean()
        if s % 7 == 3:
            r = n(x / 0).sum()
    return r.item()


if __name__ == "__main__":
    watch(net)
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    with mp.get_context("fork").Pool(2) as pool:
        for it in range(6):
            eps = torch.randn(8, theta.numel())
            jobs = [(it * 8 + i, (theta + 0.1 * e).numpy()) for i, e in enumerate(eps)]
            r = torch.tensor(pool.map(episode, jobs, chunksize=2))
            ok = r.isfinite()
            a = (r[ok] - r[ok].mean()) / (r[ok].std() + 1e-6)
            theta = theta + 0.05 * (a[:, None] * eps[ok]).mean(0)
            print(it, dig(r[ok], theta), int((~ok).sum()))
    nn.utils.vector_to_parameters(theta, net.parameters())
    for step in range(8):
        x = torch.randn(16, 4)
        loss = F.mse_loss(net(x), x[:, :2])
        opt.zero_grad(); loss.backward(); opt.step()
    with mp.get_context("fork").Pool(1) as pool:
        print(pool.map(episode, [(3, theta.numpy())])[0] != 0)
    print(dig(loss))
    end(net, opt)
