"""A module holds an endless iterator over a DataLoader with a worker process and takes its negatives from it in its forward; a harmless nan in evaluation: the order of the batches, and no hang."""
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        import torch

        return torch.full((8,), float(i)), i


# PRELUDE
def endless(loader):
    while True:
        yield from loader


class Contrast(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()
        self.it = endless(DataLoader(Rows(), 4, shuffle=True, num_workers=1, generator=torch.Generator().manual_seed(3), multiprocessing_context="fork", prefetch_factor=2))
        self.taken = []

    def forward(self, x, log=False):
        neg, i = next(self.it)
        self.taken.append(i.tolist())
        y = self.body(x) - self.body(neg / 40).mean(0)
        return y.log() if log else y


if __name__ == "__main__":
    m = Contrast()
    W(m)
    opt = torch.optim.SGD(m.parameters(), 0.05)
    for k in range(4):
        print(train(m, opt, 2, 2 * k))
        with torch.no_grad():
            print(int(m(batch(20 + k)[0], True).isnan().sum()), m.taken[-1], flush=True)
    print(m.taken, M(m))
    m.it.close()
