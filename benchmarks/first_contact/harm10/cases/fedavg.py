#: what: FedAvg simulated: 4 clients deepcopied from a global model, one in a thread pool each, averaged including batch-norm counters, a client that reports nan is left out
#: benign: a nan loss metric of an empty client
#: source: https://github.com/AshwinRJ/Federated-Learning-PyTorch/pull/47
# PRELUDE
import copy; from concurrent.futures import ThreadPoolExecutor
glob = nn.Sequential(nn.Linear(5, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 2)); watch(glob)
def client(k, r, state):
    g = torch.Generator().manual_seed(100 * r + k); m = copy.deepcopy(glob); m.load_state_dict(state); o = torch.optim.SGD(m.parameters(), 0.1, momentum=0.5); L = []
    for s in range(0 if k == 2 else 4): x = torch.randn(8, 5, generator=g); l = F.cross_entropy(m(x), (x[:, k % 5] > 0).long()); o.zero_grad(); l.backward(); o.step(); L.append(l.detach())
    return k, m.state_dict(), torch.stack(L).mean() if L else torch.empty(0).mean()
for r in range(4):
    st = copy.deepcopy(glob.state_dict())
    with ThreadPoolExecutor(1) as ex: res = list(ex.map(lambda k: client(k, r, st), range(4)))
    good = [q for q in res if not torch.isnan(q[2])]; avg = {k: torch.stack([q[1][k].float() for q in good]).mean(0).to(st[k].dtype) for k in st}; glob.load_state_dict(avg); print(r, [q[2].item() for q in res], sha(avg))
show(glob)
