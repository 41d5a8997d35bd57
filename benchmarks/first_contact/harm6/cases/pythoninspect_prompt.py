"""PYTHONINSPECT set by the script itself: after its last line Python reads statements from stdin in the script's own namespace; they train on, look at names, and end by exit(5)."""
# PRELUDE
m = net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 3), __name__, sorted(k for k in globals() if len(k) == 1))
os.environ["PYTHONINSPECT"] = "1"
secret = 41
print("end of the script", flush=True)
