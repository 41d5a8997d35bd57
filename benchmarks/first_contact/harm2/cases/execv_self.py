"""The script replaces itself by os.execv of sys.executable with its argv (a restart), and ends with status 6.

Source: invented
"""
# PRELUDE
m = net(); print(sys.argv[1:], train(m, torch.optim.SGD(m.parameters(), 0.1), 2), flush=True)
if sys.argv[1] == "first":
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, __file__, "second"])
sys.exit(6)
