"""A dataset that calls the watched model itself, in forked loader workers with prefetching, and in the main process; worker_init_fn and generator."""
# PRELUDE
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

m = net(8)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)


class Self(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        x, y = batch(i, 1)
        with torch.no_grad():
            f = m(x)
        info = get_worker_info()
        return x[0], f[0], -1 if info is None else info.id, random.random(), float(np.random.rand())


class Grad(IterableDataset):
    def __iter__(self):
        k = get_worker_info()
        torch.set_num_threads(1)
        o = torch.optim.SGD(m.parameters(), 0.05)
        for s in range(3):
            loss = train(m, o, 1, s + 10 * (k.id if k else 5))
            yield loss, M(m)


def init(i):
    np.random.seed(torch.initial_seed() % 2**32)


if __name__ == "__main__":
    for workers in (2, 0, 2):
        for x, f, w, r, n in DataLoader(Self(), 4, shuffle=True, num_workers=workers, worker_init_fn=init, generator=torch.Generator().manual_seed(3)):
            opt.zero_grad()
            F.mse_loss(m(x), f).backward()
            opt.step()
            print(workers, w.tolist(), H(x, f, r, n) if workers else H(x, f))
    print(list(DataLoader(Grad(), None, num_workers=2)))
    try:
        list(DataLoader(Self(), 4, num_workers=1, collate_fn=lambda b: 1 / 0))
    except ZeroDivisionError as e:
        print(str(e).splitlines()[0], str(e).splitlines()[-1])
    print(M(m), R())
