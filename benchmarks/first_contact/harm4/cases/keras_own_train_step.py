"""Keras on torch with a train_step of its own, a custom layer with weights made in build, metrics, callbacks that write CSV, and a saved model's weights."""
# PRELUDE
os.environ["KERAS_BACKEND"] = "torch"
import keras

keras.utils.set_random_seed(3)


class Scale(keras.layers.Layer):
    def build(self, shape):
        self.s = self.add_weight(shape=(shape[-1],), initializer="ones", name="s")

    def call(self, x, training=False):
        return x * self.s * (0.9 if training else 1.0)


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.tracker = keras.metrics.Mean(name="loss")
        self.a, self.s, self.d, self.b = keras.layers.Dense(16, activation="relu"), Scale(), keras.layers.Dropout(0.1), keras.layers.Dense(4)

    def call(self, x, training=False):
        return self.b(self.d(self.s(self.a(x), training=training), training=training))

    def train_step(self, data):
        x, y = data
        self.zero_grad()
        loss = keras.ops.mean((self(x, training=True) - y) ** 2)
        loss.backward()
        ws = [w for w in self.trainable_weights]
        with torch.no_grad():
            self.optimizer.apply([w.value.grad for w in ws], ws)
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}

    @property
    def metrics(self):
        return [self.tracker]


x = np.stack([batch(i, 1)[0][0].numpy() for i in range(32)])
y = np.stack([batch(i, 1)[1][0].numpy() for i in range(32)])
m = Own()
m(x[:2])
W(m)
m.metrics
m.compile(optimizer=keras.optimizers.Adam(1e-2))
h = m.fit(x, y, batch_size=8, epochs=3, verbose=0, callbacks=[keras.callbacks.CSVLogger("log.csv"), keras.callbacks.LambdaCallback(on_epoch_end=lambda e, logs: print(e, float(logs["loss"]).hex()))])
print(H([np.asarray(w) for w in m.get_weights()]), H(m.predict(x[:3], verbose=0)), [w.path for w in m.weights][:3])
print(R())
