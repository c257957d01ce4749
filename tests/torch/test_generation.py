"""Text from a decoder of `transformers`, with `generate()` and a static cache: eager's tokens, one plan."""

# pyright: reportInvalidTypeForm=false
from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

import metaschedule.torch  # noqa: E402, F401  (makes the backend known)
from metaschedule.torch.backend import EVERY  # noqa: E402


@pytest.mark.parametrize("options", [{}, {"weights": "int8"}], ids=["float32", "int8"])
@pytest.mark.filterwarnings("ignore")
def test_generate_with_a_static_cache(options: dict[str, Any]) -> None:
    torch._dynamo.reset()
    EVERY.clear()
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=None,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    prompt = torch.randint(1, 64, (2, 6))
    shown = torch.ones_like(prompt)
    shown[0, :2] = prompt[0, :2] = 0  # one text is shorter
    compile = transformers.CompileConfig(
        backend="metaschedule", mode=None, fullgraph=False, dynamic=False, options={"strict": True, **options}
    )
    compile._compile_all_devices = True
    given = {"attention_mask": shown, "do_sample": False, "cache_implementation": "static"}
    new = 20 if not options else 4
    expected = model.generate(prompt, max_new_tokens=new, disable_compile=True, **given)
    found = model.generate(prompt, max_new_tokens=new, compile_config=compile, **given)
    if not options:
        assert (found == expected).all()
    assert found.shape == expected.shape
    every: Any = list(EVERY)
    (plan,) = [one.runner.plan for each in every for one in each.known.values()]
    assert sum(write.output is None for write in plan.writes) == 4  # keys and values of two layers
    names = [step.name for step in plan.steps]
    assert names.count("cached_attention") == 2
    assert names.count("mul_amax") == 1


@pytest.mark.filterwarnings("ignore")
def test_a_sliding_window_has_three_plans() -> None:
    """The cache counts tokens in Python: the first token, filling, full."""
    torch._dynamo.reset()
    EVERY.clear()
    torch.manual_seed(0)
    config = transformers.MistralConfig(
        vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, sliding_window=8, eos_token_id=None,
    )  # fmt: skip
    model = transformers.MistralForCausalLM(config).eval()
    prompt = torch.randint(3, 64, (1, 4))
    compile = transformers.CompileConfig(
        backend="metaschedule", mode=None, fullgraph=False, options={"strict": True}
    )
    compile._compile_all_devices = True
    given = {"do_sample": False, "cache_implementation": "static", "max_new_tokens": 12}
    given["attention_mask"] = torch.ones_like(prompt)
    expected = model.generate(prompt, disable_compile=True, **given)
    found = model.generate(prompt, compile_config=compile, **given)
    assert (found == expected).all()
    every: Any = list(EVERY)
    assert sum(len(one.known) for one in every) == 3
