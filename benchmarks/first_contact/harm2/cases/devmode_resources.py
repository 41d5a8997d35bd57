"""Python's development mode: ResourceWarnings, debug hooks, faulthandler; what is printed at the end on stderr.

Source: https://github.com/pymupdf/PyMuPDF/issues/331
"""
# PRELUDE
import faulthandler, warnings
m = net(); print(train(m, torch.optim.Adam(m.parameters(), 1e-2), 4), M(m), sys.flags.dev_mode, faulthandler.is_enabled())
f = open("left_open.txt", "w"); f.write("x"); f = None
class Later:
    def __del__(self): print("bye")
later = Later()
