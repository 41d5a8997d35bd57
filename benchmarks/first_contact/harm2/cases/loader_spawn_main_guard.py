"""DataLoader workers by spawn: the main module is imported again as __mp_main__; what it prints there, seeds, order.

Source: https://github.com/coveragepy/coveragepy/issues/745
"""
# PRELUDE
class DS(torch.utils.data.Dataset):
    def __len__(self): return 6
    def __getitem__(self, i): return torch.randn(8), type(self).__module__, os.path.basename(sys.argv[0])
if __name__ == "__main__":
    m = net(); dl = torch.utils.data.DataLoader(DS(), 3, num_workers=1, multiprocessing_context="spawn", generator=torch.Generator().manual_seed(1))
    opt = torch.optim.SGD(m.parameters(), 0.1)
    for x, mod, a in dl: loss = m(x).square().mean(); opt.zero_grad(); loss.backward(); opt.step(); print(mod, a, H(x), float(loss.detach()).hex())
    print(M(m), R())
