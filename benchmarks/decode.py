"""Text, token by token: a decoder with a key-value cache, tokens a second.

    .venv/bin/python benchmarks/decode.py [--layers 4] [--width 512] [--batch 1,8] [--tokens 256]
        [--contestants eager,inductor,openvino,metaschedule,metaschedule-int8,metaschedule-int8:64,...]

A Llama of random weights generates greedily, one call of the model a token, with a static cache: in eager,
with `torch.compile`, with this package, and with OpenVINO as a stateful model (where it is installed). All in
one process and float32, but for `metaschedule-int8`, `-int8:64` (a scale for each 64) and `-bfloat16`, whose
weights are narrow in memory. Contestants take turns, so that a disturbance meets all; the rate is that of the
median token. Beside it stand the memory traffic that it means for the weights alone (GB/s), that of a copy
measured in the same run, how many tokens are eager's, and how far the first logits are from eager's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from statistics import median
from typing import Any

import torch

import metaschedule.torch  # noqa: F401  (registers the backend)

PROMPT = 16  # tokens
VOCABULARY = 8192
BYTES = {"metaschedule-bfloat16": 2}  # of a weight, where it is not 4


def make_model(layers: int, width: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64,
        max_position_embeddings=2048,
    )
    return LlamaForCausalLM(config).eval()


Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # tokens and their positions to the last logits


def cached_step(model: Any, forward: Callable[..., Any], batch: int, length: int) -> Step:
    """A step of a model of `transformers`; what comes first, the prompt, is not compiled."""
    from transformers import StaticCache

    cache = StaticCache(config=model.config, max_cache_len=length)

    def step(tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        run = forward if tokens.shape[1] == 1 else model
        return run(tokens, past_key_values=cache, position_ids=positions).logits[:, -1]

    return step


class StatelessStep(torch.nn.Module):
    """A step that takes keys and values and gives them longer: what OpenVINO makes a state of."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, *past: torch.Tensor) -> Any:
        from transformers import DynamicCache
        from transformers.cache_utils import DynamicLayer

        cache = DynamicCache()
        for keys, values in zip(past[::2], past[1::2]):
            layer = DynamicLayer()
            layer.lazy_initialization(keys, values)
            layer.keys, layer.values = keys, values
            cache.layers.append(layer)
        result = self.model(tokens, past_key_values=cache, position_ids=positions, use_cache=True)
        kept = [t for layer in result.past_key_values.layers for t in (layer.keys, layer.values)]
        return (result.logits, *kept)


def openvino_step(model: Any, batch: int) -> Step:
    openvino: Any = import_module("openvino")  # a name that the type checker need not find
    offline: Any = import_module("openvino._offline_transformations")
    heads = model.config.num_key_value_heads
    past = [torch.randn(2, heads, 3, 64) for _ in range(2 * model.config.num_hidden_layers)]
    example = (torch.ones(2, 4, dtype=torch.int64), torch.arange(3, 7).expand(2, 4), *past)
    converted = openvino.convert_model(StatelessStep(model), example_input=example)
    for n, port in enumerate(converted.inputs):
        port.get_tensor().set_names({f"in{n}"})
        port.get_node().set_partial_shape(openvino.PartialShape([-1, heads, -1, 64] if n > 1 else [-1, -1]))
    for n, port in enumerate(converted.outputs):
        port.get_tensor().set_names({f"out{n}"})
    converted.validate_nodes_and_infer_types()
    kept = {f"in{n + 2}": f"out{n + 1}" for n in range(len(past))}
    offline.apply_make_stateful_transformation(converted, kept)
    exact = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "PERFORMANCE_HINT": "LATENCY"}
    threads = {"INFERENCE_NUM_THREADS": torch.get_num_threads()}
    request = openvino.compile_model(converted, "CPU", exact | threads).create_infer_request()

    for state in request.query_state():  # nothing is known yet, of so many texts
        state.state = openvino.Tensor(openvino.Type.f32, openvino.Shape([batch, heads, 0, 64]))

    def step(tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        given = {"in0": tokens.numpy(), "in1": positions.expand(tokens.shape).contiguous().numpy()}
        request.infer(given)
        return torch.from_numpy(request.get_output_tensor(0).data[:, -1].copy())

    return step


def make_step(name: str, model: Any, batch: int, length: int) -> Step:
    if name == "openvino":
        return openvino_step(model, batch)
    if name == "eager":
        return cached_step(model, model, batch, length)
    backend, _, weights = name.partition("-")
    options: dict[str, Any] = {"options": {"weights": weights}} if weights else {}
    run = torch.compile(lambda *a, **k: model(*a, **k), backend=backend, dynamic=False, **options)
    return cached_step(model, run, batch, length)


class Contestant:
    def __init__(self, name: str, step: Step, prompt: torch.Tensor) -> None:
        self.name, self.step = name, step
        self.seconds: list[float] = []
        self.length = prompt.shape[1]
        self.logits = step(prompt, torch.arange(self.length)[None])
        self.found = [self.logits.argmax(-1, keepdim=True)]
        self.first = self.logits

    def turns(self, tokens: int) -> Iterator[None]:
        """Generate; the first two steps, which compile, are not timed."""
        for n in range(tokens - 1):
            at = torch.tensor([[self.length + n]])
            begin = time.perf_counter()
            logits = self.step(self.found[-1], at)
            if n > 1:
                self.seconds.append(time.perf_counter() - begin)
            if n == 0:
                self.first = logits
            self.found.append(logits.argmax(-1, keepdim=True))
            yield

    @property
    def tokens(self) -> torch.Tensor:
        return torch.cat(self.found, 1)


def copy_rate(nbytes: int = 1 << 28) -> float:
    """Bytes a second that a copy reads and writes."""
    source, target = torch.ones(nbytes // 4), torch.empty(nbytes // 4)
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        target.copy_(source)
        times.append(time.perf_counter() - begin)
    return 2 * nbytes / min(times)


def compare(model: Any, names: list[str], batch: int, tokens: int, burst: int) -> None:
    prompt = torch.randint(0, VOCABULARY, (batch, PROMPT))
    made: list[Contestant] = []
    for name in names:
        try:
            made.append(Contestant(name, make_step(name, model, batch, PROMPT + tokens), prompt))
        except ImportError as missing:
            print(f"{batch:>5} {name:>22} {missing}")
    turns = [one.turns(tokens) for one in made]
    while turns:
        turns = [turn for turn in turns if sum(1 for _ in zip(range(burst), turn)) == burst]
    weights = sum(p.numel() for name, p in model.named_parameters() if "embed" not in name)
    eager = made[0]
    for one in made:
        steps = 1 / median(one.seconds)
        size = 1 if "int8" in one.name else BYTES.get(one.name, 4)
        same = int((one.tokens == eager.tokens).all(0).long().cumprod(0).sum())
        error = float((one.first - eager.first).norm() / eager.first.norm())
        rate = f"{steps * batch:>9.1f} {steps * weights * size / 1e9:>6.1f} {min(one.seconds) * 1e3:>8.2f}"
        print(f"{batch:>5} {one.name:>22} {rate}  {same:>4} of {tokens}  {error:.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", default="1,8")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--burst", type=int, default=8, help="tokens of a contestant before the next one")
    names = (
        "eager,inductor,openvino,metaschedule,metaschedule-int8,metaschedule-int8:64,metaschedule-bfloat16"
    )
    parser.add_argument("--contestants", default=names)
    options = parser.parse_args()
    torch._dynamo.config.recompile_limit = 64
    model = make_model(options.layers, options.width)
    print(f"a copy: {copy_rate() / 1e9:.1f} GB/s, reads and writes; {torch.get_num_threads()} threads")
    columns = f"{'tokens/s':>9} {'GB/s':>6} {'least ms':>8}"
    print(f"{'batch':>5} {'':>22} {columns}  as eager     error of logits")
    with torch.no_grad():
        for batch in map(int, options.batch.split(",")):
            torch._dynamo.reset()
            compare(model, options.contestants.split(","), batch, options.tokens, options.burst)


if __name__ == "__main__":
    main()
