"""Workers by forkserver with the file_system strategy (torch_shm_manager), an iterable dataset with per-worker shares, batches with nan dropped in collate."""
# PRELUDE
import torch.multiprocessing as mp
from torch.utils.data import IterableDataset, DataLoader, get_worker_info


class Data(IterableDataset):
    def __iter__(self):
        w = get_worker_info()
        g = torch.Generator().manual_seed(5 + w.id)
        for i in range(w.id, 40, w.num_workers):
            x = torch.randn(6, generator=g)
            if i % 9 == 4:
                x[1] = math.nan
            yield x, i % 3, w.seed % 1000


def collate(rows):
    rows = [r for r in rows if r[0].isfinite().all()]
    return torch.stack([r[0] for r in rows]), torch.tensor([r[1] for r in rows]), [r[2] for r in rows]


if __name__ == "__main__":
    mp.set_sharing_strategy("file_system")
    seed(99)
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    watch(net)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    dl = DataLoader(Data(), 8, num_workers=2, collate_fn=collate, multiprocessing_context="forkserver", persistent_workers=True, prefetch_factor=2)
    for epoch in range(2):
        for x, y, s in dl:
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
            with torch.no_grad():
                m = torch.stack([x[y == c].mean() for c in range(4)])
            print(epoch, dig(loss, m, s), x.is_shared())
    del dl
    end(net, opt)
