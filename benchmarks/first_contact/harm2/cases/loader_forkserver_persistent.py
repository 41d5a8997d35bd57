"""Persistent workers by forkserver, left in the middle of an epoch, an exception in a worker, a timeout.

Source: https://github.com/pytorch/pytorch/issues/75147
"""
# PRELUDE
class DS(torch.utils.data.Dataset):
    def __init__(self, bad=-1): self.bad = bad
    def __len__(self): return 8
    def __getitem__(self, i):
        if i == self.bad: raise LookupError(f"item {i}")
        return torch.full((8,), float(i))
if __name__ == "__main__":
    m = net(); opt = torch.optim.SGD(m.parameters(), 0.01)
    dl = torch.utils.data.DataLoader(DS(), 2, num_workers=1, multiprocessing_context="forkserver", persistent_workers=True, prefetch_factor=2, timeout=20)
    for e in range(3):
        for k, x in enumerate(dl):
            loss = m(x).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
            if k == 1 and e == 0: break
        print(e, k, float(loss.detach()).hex())
    try:
        for x in torch.utils.data.DataLoader(DS(5), 2, num_workers=1): print(float(m(x).detach().sum()).hex())
    except LookupError as err: print(str(err).strip().splitlines()[-1])
    print(M(m)); del dl
