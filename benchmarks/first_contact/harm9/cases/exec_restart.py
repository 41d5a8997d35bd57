"""The script checkpoints and replaces itself by os.execv with its own command line (a restart after a leak); env and argv must be its own."""
# PRELUDE
seed(41)
state = "state.pt"
begin, seen = 0, []
net = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 2))
opt = torch.optim.Adam(net.parameters(), 1e-2)
if os.path.exists(state):
    s = torch.load(state, weights_only=False)
    net.load_state_dict(s["net"]); opt.load_state_dict(s["opt"])
    torch.set_rng_state(s["rng"])
    begin = s["step"]
watch(net)
print("begin", begin, sys.argv[1:], os.path.basename(sys.argv[0]))
print(sorted(k for k in os.environ if k.startswith(("NUMSCOPE", "PYTHON", "LD_"))))
for step in range(begin, 12):
    loss = net(torch.randn(8, 5)).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, dig(loss), flush=True)
    if step in (3, 7):
        torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "rng": torch.get_rng_state(), "step": step + 1}, state)
        os.execv(sys.executable, [sys.executable, sys.argv[0], "--again", str(step)])
end(net, opt)
