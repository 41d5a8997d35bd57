"""The working folder is removed during training; os.getcwd fails as it does; relative opens fail; the run goes on.

Source: invented
"""
# PRELUDE
os.mkdir("gone"); os.chdir("gone"); m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 2))
os.rmdir("../gone")
try:
    os.getcwd()
except FileNotFoundError as e: print(e)
print(train(m, opt, 4), M(m))
try:
    torch.save(m.state_dict(), "w.pt")
except (RuntimeError, OSError) as e: print(type(e).__name__)
