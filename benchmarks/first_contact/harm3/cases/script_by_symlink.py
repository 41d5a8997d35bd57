"""The script is started through a symbolic link in another folder: sys.path[0] is the folder of the real file, __file__ the link; a sibling of the real file is imported."""
# PRELUDE
import sib

w = os.getcwd()
print(sib.WORD, os.path.relpath(__file__, w), os.path.relpath(sys.argv[0], w), os.path.relpath(sys.path[0], w), sys.argv[1:])
m = net(1)
print(train(m, torch.optim.SGD(m.parameters(), 0.1), 3), M(m))
