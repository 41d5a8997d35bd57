"""An uncaught exception with a cause, a note and a group at a line of the script after training: the whole traceback, status 1.

Source: https://github.com/Textualize/rich/issues/849
"""
# PRELUDE
m = net(); print(train(m, torch.optim.SGD(m.parameters(), 0.1), 3))
def fail():
    try:
        {}["missing"]
    except KeyError as e:
        err = ValueError("bad value"); err.add_note("a note"); raise err from e
try:
    fail()
except ValueError as e:
    raise ExceptionGroup("several", [e, TypeError("t")])
