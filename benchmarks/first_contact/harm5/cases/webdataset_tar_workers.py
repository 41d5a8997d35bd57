"""Shards of tar files streamed by an IterableDataset with worker splitting, shuffle buffer, PIL decoding, per-worker seeds, batches padded with pack_padded_sequence; persistent workers over two epochs; CLIP's logit scale clamp; HF datasets with torch format beside it."""
# PRELUDE
import tarfile, io, warnings
from PIL import Image
from torch.utils.data import IterableDataset, DataLoader, get_worker_info
def make():
    rs = np.random.RandomState(1)
    for sh in range(4):
        with tarfile.open(f"s{sh}.tar", "w") as t:
            for i in range(6):
                b = io.BytesIO()
                Image.fromarray(rs.randint(0, 255, (8, 8, 3), dtype=np.uint8)).save(b, "PNG")
                for ext, data in (("png", b.getvalue()), ("txt", bytes(rs.randint(1, 20, rs.randint(3, 7)).astype(np.uint8)))):
                    ti = tarfile.TarInfo(f"{sh}{i}.{ext}")
                    ti.size = len(data)
                    t.addfile(ti, io.BytesIO(data))
class WDS(IterableDataset):
    epoch = 0
    def __iter__(self):
        w = get_worker_info()
        rng = random.Random(torch.initial_seed() % 2 ** 32)
        buf = []
        for sh in range(w.id if w else 0, 4, w.num_workers if w else 1):
            cur = {}
            for ti in (t := tarfile.open(f"s{sh}.tar")):
                cur[ti.name[-3:]] = t.extractfile(ti).read()
                if len(cur) == 2:
                    s = (torch.from_numpy(np.array(Image.open(io.BytesIO(cur["png"])))).float().permute(2, 0, 1) / 255 + torch.randn(1) * 0.01, torch.tensor(list(cur["txt"])))
                    cur = {}
                    buf.append(s)
                    if len(buf) > 4:
                        yield buf.pop(rng.randrange(len(buf)))
        yield from buf
def collate(b):
    return torch.stack([x for x, _ in b]), nn.utils.rnn.pad_sequence([y for _, y in b], batch_first=True), torch.tensor([len(y) for _, y in b])
class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.v, self.e, self.g = nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(32, 8)), nn.Embedding(20, 8), nn.GRU(8, 8, batch_first=True)
        self.logit_scale = nn.Parameter(torch.ones([]) * np.log(1 / 0.07))
    def forward(self, x, t, n):
        p = nn.utils.rnn.pack_padded_sequence(self.e(t), n, batch_first=True, enforce_sorted=False)
        return F.normalize(self.v(x), dim=-1), F.normalize(self.g(p)[1][0], dim=-1), self.logit_scale.exp()
if __name__ == "__main__":
    make()
    m = Clip()
    W(m)
    opt = torch.optim.AdamW(m.parameters(), 1e-2)
    dl = DataLoader(WDS(), 4, num_workers=2, collate_fn=collate, persistent_workers=True, prefetch_factor=2, generator=torch.Generator().manual_seed(5))
    for ep in range(2):
        for x, t, n in dl:
            a, b, sc = m(x, t, n)
            lg = sc * a @ b.t()
            loss = (F.cross_entropy(lg, torch.arange(len(lg))) + F.cross_entropy(lg.t(), torch.arange(len(lg)))) / 2
            opt.zero_grad()
            loss.backward()
            opt.step()
            with torch.no_grad():
                m.logit_scale.clamp_(0, np.log(100))
        print(ep, float(loss.detach()).hex(), H(x, t))
    from datasets import Dataset
    ds = Dataset.from_dict({"x": [[float(i)] * 3 for i in range(6)]}).with_format("torch")
    print(H(next(iter(DataLoader(ds, 3, shuffle=True)))["x"]), M(m), R())
