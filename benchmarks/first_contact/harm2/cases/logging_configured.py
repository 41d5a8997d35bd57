"""The script's logging: basicConfig works, handlers, a file, captureWarnings, dictConfig that disables existing loggers, lastResort.

Source: https://github.com/instructlab/sdg/issues/196
"""
# PRELUDE
import logging, logging.config, warnings
print(logging.root.handlers, logging.root.level)
logging.warning("before any configuration") if False else logging.getLogger("x").warning("by lastResort")
logging.basicConfig(filename="t.log", level=logging.DEBUG, format="%(levelname)s %(name)s %(funcName)s %(lineno)d %(message)s")
logging.captureWarnings(True)
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1)
for s in range(3): logging.info("step %d %s", s, train(m, opt, 1, s))
warnings.warn("captured")
logging.config.dictConfig({"version": 1, "disable_existing_loggers": True, "handlers": {"h": {"class": "logging.StreamHandler", "stream": "ext://sys.stdout"}}, "root": {"handlers": ["h"], "level": "DEBUG"}})
logging.debug("now on stdout %s", train(m, opt, 2)); print(len(logging.root.handlers), M(m))
t = open("t.log").read().replace(os.getcwd(), "."); open("t.log", "w").write(t)
