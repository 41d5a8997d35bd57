# what: the script restarts itself by os.execv(sys.executable, [sys.executable] + sys.argv) after a checkpoint, as watchdog loops do
# PRELUDE
n = int(os.environ.get("GEN", 0)); model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1)
if os.path.exists("ck.pt"): model.load_state_dict(torch.load("ck.pt"))
print(n, sys.argv, train(model, opt, 3, 3 * n), M(model), R(), flush=True); torch.save(model.state_dict(), "ck.pt"); print(__name__, __file__ == sys.argv[0] or os.path.basename(__file__), os.path.basename(sys.path[0]), flush=True)
if n < 2: os.environ["GEN"] = str(n + 1); os.execv(sys.executable, [sys.executable] + sys.argv)
sys.exit(5)
