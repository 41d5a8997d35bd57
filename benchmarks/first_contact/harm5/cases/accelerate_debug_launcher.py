"""accelerate's debug_launcher: two forked CPU ranks that train a function of the script (as notebooks do), results written by the main process; then the parent trains on."""
# PRELUDE
from accelerate import Accelerator, debug_launcher
def fn(lr):
    torch.set_num_threads(1)
    acc = Accelerator(cpu=True)
    m = net(2)
    W(m)
    ds = torch.utils.data.TensorDataset(*batch(0, 20))
    dl = torch.utils.data.DataLoader(ds, 2, shuffle=True, generator=torch.Generator().manual_seed(1))
    opt = torch.optim.SGD(m.parameters(), lr)
    m, opt, dl = acc.prepare(m, opt, dl)
    for x, y in dl:
        opt.zero_grad()
        loss = F.mse_loss(m(x), y)
        acc.backward(loss)
        opt.step()
    ls = acc.gather(loss.detach().view(1))
    if acc.is_main_process:
        torch.save({"m": acc.unwrap_model(m).state_dict(), "l": ls}, "r.pt")
        print("rank 0", H(ls), acc.num_processes, flush=True)
if __name__ == "__main__":
    debug_launcher(fn, (0.05,), 2)
    m = net(1)
    W(m)
    m.load_state_dict(torch.load("r.pt")["m"])
    print(train(m, torch.optim.Adam(m.parameters(), 1e-2), 3), M(m), R())
