"""megatron-core's GPT by its local layer spec: dp (its DDP), tp, with q/k norms, distributed optimizer's buckets."""
from littlelm import *
import warnings

warnings.filterwarnings("ignore")
torch.cuda.current_device = lambda: torch.device("cpu")  # Megatron asks for it without a GPU too
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer import TransformerConfig

how, fault = arg("--how", "single"), arg("--fault")
if "RANK" not in os.environ:
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000))
dist.init_process_group("gloo")
tp = WORLD if how in ("tp", "sp") else 1
parallel_state.initialize_model_parallel(tensor_model_parallel_size=tp)
dp = WORLD // tp
torch.manual_seed(0)
micro = 2
config = TransformerConfig(
    num_layers=2, hidden_size=D, num_attention_heads=H, ffn_hidden_size=2 * D, tensor_model_parallel_size=tp,
    sequence_parallel=how == "sp", use_cpu_initialization=True, hidden_dropout=0.0, attention_dropout=0.0,
    pipeline_dtype=torch.float32, bf16=False, gradient_accumulation_fusion=False, bias_dropout_fusion=False,
    masked_softmax_fusion=False, add_bias_linear=True, qk_layernorm="--qk" in sys.argv, persist_layer_norm=False,
    perform_initialization=True, normalization="RMSNorm" if "--rms" in sys.argv else "LayerNorm",
)


class NoTracker:
    """There is no dropout, and no GPU whose random state could be kept."""

    def fork(self, name=None):
        return __import__("contextlib").nullcontext()

    def is_initialized(self):
        return True


tensor_parallel.random._CUDA_RNG_STATE_TRACKER = NoTracker()
tensor_parallel.random._CUDA_RNG_STATE_TRACKER_INITIALIZED = True
spec = get_gpt_layer_local_spec(qk_layernorm="--qk" in sys.argv, normalization="RMSNorm" if "--rms" in sys.argv else None)
model = GPTModel(config=config, transformer_layer_spec=spec, vocab_size=64, max_sequence_length=T,
                 position_embedding_type="rope" if "--rope" in sys.argv else "learned_absolute", share_embeddings_and_output_weights=True)
dc = DistributedDataParallelConfig(overlap_grad_reduce=False, use_distributed_optimizer=False, average_in_collective="--avg" in sys.argv)
wrapped = DistributedDataParallel(config, dc, model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
positions = torch.arange(T)[None].expand(B // dp // micro, T)
mask = torch.ones(1, 1, T, T, dtype=torch.bool).triu(1)
rank_dp = parallel_state.get_data_parallel_rank()
for step in range(STEPS):
    tokens, labels = batch(step)
    labels = torch.where(labels == -100, 7, labels)
    tokens, labels = tokens.chunk(dp)[rank_dp], labels.chunk(dp)[rank_dp]
    wrapped.zero_grad_buffer()
    seen = 0.0
    for i, (x, y) in enumerate(zip(tokens.chunk(micro), labels.chunk(micro))):
        hush = wrapped.no_sync() if i < micro - 1 else __import__("contextlib").nullcontext()
        with hush:
            loss = wrapped(x, positions, mask, labels=y).mean()
            seen += loss.item() / micro
            (loss if fault == "no-micro" else loss / micro).backward()
    if fault == "no-finalize":
        wrapped.finish_grad_sync()
    elif fault == "no-sync":
        pass
    else:
        finalize_model_grads([wrapped])
    if fault == "sync-twice":
        finalize_model_grads([wrapped])
    for p in model.parameters():
        p.grad = p.main_grad
    optimizer.step()
    optimizer.zero_grad()
    report(step, total(seen, 1.0), model)
