"""The root logger at DEBUG with a list handler, a LogRecord factory and a logger class of the script's, loguru with an intercept handler, QueueHandler and listener: names of all loggers that spoke."""
# PRELUDE
import logging
import logging.handlers
import queue

from loguru import logger

recs = []
made = []
old = logging.getLogRecordFactory()


def factory(*a, **k):
    r = old(*a, **k)
    r.tag = "t"
    made.append(r.name.split(".")[0])
    return r


class L(logging.Logger):
    def makeRecord(self, *a, **k):
        r = super().makeRecord(*a, **k)
        r.cls = "L"
        return r


class Hd(logging.Handler):
    def emit(self, r):
        recs.append((r.name.split(".")[0], r.levelname, r.getMessage()[:60], getattr(r, "tag", None), getattr(r, "cls", None)))
        logger.opt(depth=6).log(r.levelname, r.getMessage()[:60])


logging.setLogRecordFactory(factory)
logging.setLoggerClass(L)
logging.root.setLevel(logging.DEBUG)
logging.root.addHandler(Hd())
logger.remove()
lines = []
logger.add(lambda t: lines.append(str(t)), format="{level} {message}", level="DEBUG")
q = queue.Queue()
lis = logging.handlers.QueueListener(q, Hd())
lg = logging.getLogger("mine.sub")
lg.addHandler(logging.handlers.QueueHandler(q))
lis.start()
m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(3):
    lg.info("loss %s", train(m, opt, 1, first=s))
lis.stop()
own = sorted(r for r in recs if r[0] == "mine")
print(own, sorted({r[0] for r in recs} - {"torch"}), len(made) >= 3, len([l for l in lines if "loss" in l]), logging.root.level, type(logging.getLogger("x")).__name__, M(m))
