"""Keras on torch: ModelCheckpoint, ReduceLROnPlateau, EarlyStopping with restored weights, BackupAndRestore, a custom layer with seed generator, load_model, LambdaCallback, predict and train_on_batch."""
# PRELUDE
import keras
keras.utils.set_random_seed(3)
@keras.saving.register_keras_serializable()
class Noise(keras.layers.Layer):
    def __init__(self, **k):
        super().__init__(**k)
        self.g = keras.random.SeedGenerator(7)
    def call(self, x, training=False):
        return x + 0.1 * keras.random.normal(keras.ops.shape(x), seed=self.g) if training else x
m = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(12, activation="gelu"), Noise(), keras.layers.BatchNormalization(), keras.layers.Dropout(0.2), keras.layers.Dense(4)])
W(m)
m.compile(keras.optimizers.Adam(1e-2, clipnorm=1.0, use_ema=True), "mse", metrics=["mae"])
x, y = (t.numpy() for t in batch(0, 32))
h = m.fit(x, y, batch_size=8, epochs=5, verbose=0, validation_split=0.25, callbacks=[keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True), keras.callbacks.ReduceLROnPlateau(patience=1), keras.callbacks.EarlyStopping(patience=2, restore_best_weights=True), keras.callbacks.BackupAndRestore("bk"), keras.callbacks.LambdaCallback(on_epoch_end=lambda e, l: print(e, {k: float(v).hex() for k, v in l.items()}))])
print(H([np.asarray(w) for w in m.get_weights()]), H(m.predict(x, verbose=0)))
m2 = keras.saving.load_model("best.keras")
print(H(m2.predict(x, verbose=0)), [float(v).hex() for v in m2.train_on_batch(x, y)])
m2.save_weights("w.weights.h5")
print(H([np.asarray(w) for w in m2.get_weights()]), R())
os.remove("best.keras"), os.remove("w.weights.h5")
