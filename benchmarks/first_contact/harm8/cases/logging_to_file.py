# what: the root logger writes to train.log and warnings are captured; an evaluation has a harmless nan
# benign: yes
# PRELUDE
import logging
logging.basicConfig(filename="train.log", level=logging.DEBUG, format="%(levelname)s %(name)s %(message)s"); logging.captureWarnings(True)
model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1)
for e in range(3):
    logging.info("epoch %d %s", e, train(model, opt, 3, 3 * e))
    model.eval()
    with torch.no_grad():
        o = model(batch(50)[0]); r = torch.corrcoef(torch.stack([o[:, 0], torch.zeros(6)]))[0, 1]
        logging.info("corr %s", r.item())
    model.train()
logging.info(M(model)); logging.info(R())
print([type(h).__name__ for h in logging.root.handlers])
