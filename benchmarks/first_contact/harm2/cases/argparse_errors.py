"""argparse's usage error of the script's: text on stderr, prog, status 2.

Source: https://github.com/openvax/mhctools/issues/387
"""
# PRELUDE
import argparse
m = net(); print(train(m, torch.optim.SGD(m.parameters(), 0.1), 2))
p = argparse.ArgumentParser(description="x"); p.add_argument("--lr", type=float)
p.parse_args()
