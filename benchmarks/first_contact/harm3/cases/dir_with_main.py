"""A folder with __main__.py, run as `python folder`: __main__'s attributes, path, import of a sibling, exit status 5."""
# PRELUDE
from word import WORD

print(WORD, __name__, os.path.basename(__file__), __package__ == "", sys.argv[1:], os.path.basename(sys.argv[0]), os.path.basename(sys.path[0]), __spec__ and __spec__.name)
m = net(1)
print(train(m, torch.optim.SGD(m.parameters(), 0.1), 3), M(m))
sys.exit(5)
