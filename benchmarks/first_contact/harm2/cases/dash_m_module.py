"""The same under -m: argv[0], __spec__.name, __package__, relative resources, import of itself by name.

Source: https://github.com/huggingface/accelerate/issues/256
"""
# PRELUDE
import argparse
p = argparse.ArgumentParser(); p.add_argument("--epochs", type=int, default=1); a = p.parse_args()
print([os.path.basename(sys.argv[0])] + sys.argv[1:], __name__, __spec__.name, __package__ == "", os.path.basename(__file__), os.path.isabs(__file__), sys.path[0] == os.getcwd(), p.prog)
m = net(); print(train(m, torch.optim.SGD(m.parameters(), 0.1), a.epochs), M(m))
if __name__ == "__main__":
    import importlib.util
    print(importlib.util.find_spec("case").name, sys.modules["__main__"].__spec__.name)
