"""A script for GPUs on a machine without one: torch.cuda is patched so that it runs (a recipe of many issue threads)."""
# PRELUDE
seed(13)
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 1
torch.cuda.current_device = lambda: 0
torch.cuda.synchronize = lambda *a, **k: None
torch.cuda.empty_cache = lambda: None
torch.cuda.manual_seed_all = lambda s: None
torch.cuda.max_memory_allocated = lambda *a: 0
torch.cuda.get_device_name = lambda *a: "none"
torch.Tensor.cuda = lambda self, *a, **k: self
nn.Module.cuda = lambda self, *a, **k: self
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)).cuda()
watch(net)
opt = torch.optim.AdamW(net.parameters(), 1e-2)
for step in range(20):
    x = torch.randn(8, 6).cuda(non_blocking=True)
    torch.cuda.synchronize()
    loss = net(x).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        net.eval()
        ev = net(x * float("nan")) if step == 9 else net(x)
        net.train()
    torch.cuda.empty_cache()
    print(step, dig(loss, ev))
print(torch.cuda.is_available(), torch.cuda.is_initialized())
end(net, opt)
