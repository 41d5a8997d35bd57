"""absl: app.run with flags of all kinds, logging to stderr at fixed verbosity, flagsaver, a positional rest, exit by the return value of main."""
# PRELUDE
from absl import app, flags, logging
from absl.testing import flagsaver
FL = flags.FLAGS
flags.DEFINE_float("lr", 0.1, "lr", lower_bound=0)
flags.DEFINE_enum("opt", "sgd", ["sgd", "adam"], "o")
flags.DEFINE_bool("use_bias", True, "b")
flags.DEFINE_multi_integer("seed", [1], "s")
def main(argv):
    logging.set_verbosity(logging.INFO)
    logging.get_absl_handler().setFormatter(None)
    for seed in FL.seed:
        m = net(seed)
        W(m)
        if not FL.use_bias:
            for l in m:
                if hasattr(l, "bias"):
                    l.bias = None
        opt = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[FL.opt](m.parameters(), FL.lr)
        print(train(m, opt, 3), M(m), argv[1:])
        logging.get_absl_handler().python_handler.setFormatter(__import__("logging").Formatter("%(message)s"))
        logging.info("trained %s", FL.opt)
        logging.log_every_n(logging.INFO, "every", 2)
        with flagsaver.flagsaver(lr=0.5):
            print(FL.lr)
    print(FL.lr, sorted(FL.flags_by_module_dict().get(sys.argv[0], []), key=lambda f: f.name)[0].name, R())
    return 5
app.run(main)
