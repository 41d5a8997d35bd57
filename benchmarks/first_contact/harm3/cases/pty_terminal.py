"""The script runs on a pseudo terminal: isatty, terminal attributes (termios), window size, process group in the foreground, os.ctermid; kept in a file and compared (not the terminal's text)."""
# PRELUDE
import termios

m = net(1)
before = termios.tcgetattr(1)
W(m)
print(train(m, torch.optim.SGD(m.parameters(), 0.1), 3))
after = termios.tcgetattr(1)
with open("seen.txt", "w") as f:
    print(sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty(), before == after, os.get_terminal_size(1), os.tcgetpgrp(1) == os.getpgrp(), M(m), file=f)
sys.exit(4)
