"""Keras on torch: fit with callbacks, validation, learning-rate schedule, a custom layer and train_step; history, weights, the saved .weights.h5's values."""
# PRELUDE
import keras

keras.utils.set_random_seed(5)


class Dense2(keras.layers.Layer):
    def __init__(self, n):
        super().__init__()
        self.n = n

    def build(self, s):
        self.k = self.add_weight(shape=(s[-1], self.n), initializer="glorot_uniform", name="k")

    def call(self, x):
        return keras.ops.matmul(x, self.k)


class Own(keras.Model):
    def train_step(self, data):
        x, y = data
        self.zero_grad()
        p = self(x, training=True)
        loss = self.compute_loss(y=y, y_pred=p)
        loss.backward()
        w = self.trainable_weights
        with torch.no_grad():
            self.optimizer.apply([v.value.grad for v in w], w)
        return {"loss": loss}


i = keras.Input((8,))
h = keras.layers.Dropout(0.2)(keras.layers.Dense(16, activation="gelu")(i))
h = keras.layers.BatchNormalization()(Dense2(12)(h))
o = keras.layers.Dense(3)(h)
x = np.random.randn(64, 8).astype("float32")
y = np.random.randint(0, 3, 64)
for cls in (keras.Model, Own):
    m = cls(i, o)
    m.compile(optimizer=keras.optimizers.AdamW(keras.optimizers.schedules.ExponentialDecay(1e-2, 10, 0.9)),
              loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"] if cls is keras.Model else None)
    seen = []
    cb = keras.callbacks.LambdaCallback(on_train_batch_end=lambda b, logs: seen.append(b))
    hist = m.fit(x, y, epochs=2, batch_size=16, validation_data=(x[:16], y[:16]) if cls is keras.Model else None, verbose=0, callbacks=[cb, keras.callbacks.EarlyStopping("loss", patience=5)])
    print({k: [float(v).hex() for v in vs] for k, vs in hist.history.items()}, seen, H([w.numpy() for w in m.weights]))
m.save_weights("w.weights.h5")
import h5py

names = []
with h5py.File("w.weights.h5") as f:
    f.visititems(lambda n, o: names.append((n, H(o[()]))) if hasattr(o, "shape") else None)
print(names, R())
os.remove("w.weights.h5")
print(H(m.predict(x[:5], verbose=0)))
