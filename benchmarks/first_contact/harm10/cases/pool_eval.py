#: what: a forked multiprocessing pool evaluates the watched model (nan metrics in children), between epochs; then a spawned ProcessPool trains two folds
#: benign: nan in forked children
#: source: memory
# PRELUDE
import multiprocessing as mp; from concurrent.futures import ProcessPoolExecutor
def ev(k):
    with torch.no_grad(): x = torch.full((4, 5), float(k)); p = m(x); return k, torch.corrcoef(p.T.repeat(2, 1))[0, 1].item() if k else (p / (p * 0)).mean().item(), sha(p)
def fold(k):
    seed(k); f = nn.Linear(3, 1); o = torch.optim.SGD(f.parameters(), 0.1)
    for s in range(5): x = torch.randn(4, 3); l = F.mse_loss(f(x), x.sum(1, keepdim=True)); o.zero_grad(); l.backward(); o.step()
    return k, l.item(), sha(list(f.parameters())), os.path.basename(sys.argv[0])
if __name__ == "__main__":
    m = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)); watch(m); opt = torch.optim.SGD(m.parameters(), 0.05)
    for ep in range(2):
        for s in range(4): x = torch.randn(8, 5); l = F.mse_loss(m(x), x[:, :1]); opt.zero_grad(); l.backward(); opt.step()
        with mp.get_context("fork").Pool(2) as pool: print(ep, l.item(), pool.map(ev, range(3)))
    with ProcessPoolExecutor(1, mp_context=mp.get_context("spawn")) as ex: print(list(ex.map(fold, range(2))))
    show(m, opt)
