"""Seq2SeqTrainer with predict_with_generate (beams), label smoothing, a collator that pads and makes decoder inputs from the model itself."""
# PRELUDE
import transformers
transformers.utils.logging.disable_progress_bar()
from transformers import BartConfig, BartForConditionalGeneration, Seq2SeqTrainer, Seq2SeqTrainingArguments
torch.manual_seed(5)
m = BartForConditionalGeneration(BartConfig(vocab_size=30, d_model=16, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=32, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=2))
W(m)
class D(torch.utils.data.Dataset):
    def __len__(self): return 12
    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        x = torch.randint(3, 30, (4 + i % 4,), generator=g)
        return {"x": x, "y": x.flip(0)[:4]}
def collate(b):
    pad = lambda ts, v: nn.utils.rnn.pad_sequence(ts, batch_first=True, padding_value=v)
    x = pad([d["x"] for d in b], 1)
    y = pad([d["y"] for d in b], -100)
    return {"input_ids": x, "attention_mask": (x != 1).long(), "labels": y, "decoder_input_ids": m.prepare_decoder_input_ids_from_labels(labels=y)}
got = []
def metrics(p):
    got.append(H(np.asarray(p.predictions)))
    return {"n": float(p.predictions.shape[1])}
a = Seq2SeqTrainingArguments(output_dir="out", per_device_train_batch_size=4, max_steps=6, eval_strategy="steps", eval_steps=3, save_strategy="no", predict_with_generate=True, generation_max_length=8, generation_num_beams=3, label_smoothing_factor=0.1, report_to=[], disable_tqdm=True, use_cpu=True, remove_unused_columns=False, logging_steps=100)
t = Seq2SeqTrainer(model=m, args=a, train_dataset=D(), eval_dataset=D(), data_collator=collate, compute_metrics=metrics)
t.remove_callback(transformers.PrinterCallback)
r = t.train()
print(float(r.training_loss).hex(), got, M(m), R())
print(H(t.predict(D(), max_length=6, num_beams=1).predictions))
