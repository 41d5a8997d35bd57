"""The script reads its answers from stdin (input, readline, read) and buffers; nothing is taken from it.

Source: invented
"""
# PRELUDE
n = int(input("steps? ")); ok = input()
m = net(); print(ok, train(m, torch.optim.SGD(m.parameters(), 0.1), n), M(m))
print(repr(sys.stdin.readline()), repr(sys.stdin.read()), sys.stdin.isatty())
try:
    input("more? ")
except EOFError as e:
    print("EOF", e)
