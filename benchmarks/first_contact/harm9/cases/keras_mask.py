"""Keras on torch: masked LSTM, TerminateOnNaN, early stopping on a metric of nan, gradient accumulation, a train_step of one's own."""
# PRELUDE
os.environ["KERAS_BACKEND"] = "torch"
import warnings
warnings.filterwarnings("ignore")
import keras
keras.utils.set_random_seed(57)
inp = keras.Input((6, 3))
h = keras.layers.Masking(0.0)(inp)
h = keras.layers.LSTM(8)(h)
net = keras.Model(inp, keras.layers.Dense(1)(h))


class NanMetric(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="nanm")
        self.s, self.n = self.add_weight(name="s", initializer="zeros"), self.add_weight(name="n", initializer="zeros")

    def update_state(self, y, p, sample_weight=None):
        self.s.assign_add(keras.ops.sum(keras.ops.cast(y > 100, "float32")))
        self.n.assign_add(keras.ops.sum(keras.ops.cast(y > 100, "float32")))

    def result(self):
        return self.s / self.n


net.compile(keras.optimizers.Adam(1e-2, gradient_accumulation_steps=2, clipnorm=1.0), "mse", metrics=[NanMetric()])
watch(net)
x = np.random.randn(48, 6, 3).astype("float32")
x[:, 4:] = 0
x[0] = 0
y = x.sum((1, 2))[:, None]
h = net.fit(x, y, epochs=3, batch_size=16, validation_split=0.25, verbose=0, callbacks=[keras.callbacks.TerminateOnNaN(), keras.callbacks.EarlyStopping("val_loss", patience=1),
                                                                                      keras.callbacks.ReduceLROnPlateau("val_loss", patience=1)])
print({k: [repr(float(e)) for e in v] for k, v in h.history.items()})
print([dig(np.asarray(w)) for w in net.get_weights()])
print(dig(net.predict(x, verbose=0)))
opt = torch.optim.SGD(net.parameters(), 1e-2)
for _ in range(4):
    loss = (net(torch.tensor(x)) - torch.tensor(y)).pow(2).mean()
    net.zero_grad(); loss.backward(); opt.step()
    print(dig(loss))
print([dig(np.asarray(w)) for w in net.get_weights()], rngs())
