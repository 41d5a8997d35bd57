"""sys.exit in an atexit function and an exception in another: order, texts, status.

Source: https://github.com/AgentOps-AI/agentops/issues/18
"""
# PRELUDE
import atexit
def bad(): raise ValueError("in atexit")
atexit.register(print, "first registered, runs last"); atexit.register(bad); atexit.register(sys.exit, 4); atexit.register(print, "runs first")
m = net(); print(train(m, torch.optim.SGD(m.parameters(), 0.1), 3))
