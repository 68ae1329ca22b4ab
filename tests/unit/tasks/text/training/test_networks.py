"""Language models from a configuration or a folder: what fits the tokenizer, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.language_models import BERT, GPT2, LLAMA, OPT, T5, VOCABULARY
from trainauto.core.errors import InputError
from trainauto.tasks.text.training.lora import LoraSettings
from trainauto.tasks.text.training.networks import NetworkSettings, make_config, make_network
from trainauto.tasks.text.training.row_checks import check_rows
from trainauto.tasks.text.training.row_layouts import PackedRows, PaddedRows
from trainauto.tasks.text.training.tokenizers import Vocabulary


def network(config: dict[str, Any], vocabulary: Vocabulary | None = VOCABULARY, **settings: Any) -> Any:
    longest = settings.pop("longest", 32)
    return make_network(NetworkSettings(config=config, **settings), vocabulary, longest=longest)


def test_what_the_tokenizer_says_is_filled_in() -> None:
    config = make_config(NetworkSettings(config=GPT2), VOCABULARY)
    assert (config.vocab_size, config.pad_token_id, config.eos_token_id, config.bos_token_id) == (512, 0, 1, None)
    assert config.use_cache is False
    assert make_config(NetworkSettings(config={**GPT2, "vocab_size": 640}), VOCABULARY).vocab_size == 640
    assert make_config(NetworkSettings("encoder_decoder", T5), VOCABULARY).decoder_start_token_id == 0
    shared = Vocabulary(512, 1, 1)
    assert make_config(NetworkSettings("encoder_decoder", {**T5}), shared).decoder_start_token_id == 1


@pytest.mark.parametrize(
    ("settings", "message", "argument"),
    [
        ({}, "a model has either config or pretrained", ""),
        ({"config": GPT2, "pretrained": "gpt2"}, "a model has either config or pretrained", ""),
        ({"config": {"n_embd": 4}}, "config has no model_type", "config"),
        ({"config": {"model_type": "gpt22"}}, "knows no model_type 'gpt22'\n.*Did you mean 'gpt2'", "config"),
        ({"config": {**GPT2, "n_layers": 3}}, "a gpt2 model has no 'n_layers'\n.*Did you mean 'n_layer'", "config"),
        ({"config": {**GPT2, "n_head": "two"}}, "(the configuration is refused|the model cannot be made)", "config"),
        ({"config": {**GPT2, "n_head": 3}}, "the model cannot be made: ValueError", "config"),
        ({"config": {**GPT2, "vocab_size": 9}}, "the model knows 9 tokens, the tokenizer has 512", "config"),
        ({"config": T5}, "a t5 model is no causal language model\n.*kind: encoder_decoder", "kind"),
        ({"config": GPT2, "kind": "encoder_decoder"}, "a gpt2 model is no encoder_decoder .*\n.*kind: causal", "kind"),
        ({"config": {"model_type": "vit"}}, "a vit model is no causal language model\n.*such as gpt2", "kind"),
        ({"config": GPT2, "attention": "flex_attention"}, "flex_attention has no backward pass on a CPU", "attention"),
        ({"pretrained": "./missing"}, "there is no model ./missing", "pretrained"),
        ({"pretrained": "tests/missing"}, "there is no model tests/missing", "pretrained"),
        ({"config": GPT2, "longest": 65}, "rows of 65 tokens are longer than the 64 positions", "config"),
        (
            {"config": LLAMA, "lora": LoraSettings(target_modules=["q_prj"])},
            "no layer of the model is called 'q_prj'\n.*Did you mean 'q_proj'.* Its layers are .*v_proj",
            "lora.target_modules",
        ),
        (
            {"config": GPT2, "lora": LoraSettings(target_modules=["query"])},
            "no layer of the model is called 'query'\n.*Known: c_attn, c_fc, c_proj",
            "lora.target_modules",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_words(settings: dict[str, Any], message: str, argument: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        network(settings.pop("config", None), **settings)
    assert refused.value.problems[0].argument == argument


def test_a_folder_gives_trained_weights_in_float32(tmp_path: Path) -> None:
    trained = network(LLAMA).to(torch.bfloat16)
    trained.save_pretrained(tmp_path)
    loaded = make_network(NetworkSettings(pretrained=tmp_path), VOCABULARY, longest=32)
    for name, weight in trained.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight.float()), name
    other = make_network(NetworkSettings(pretrained=tmp_path), VOCABULARY, longest=32, weights=False)
    assert not torch.equal(other.get_input_embeddings().weight, loaded.get_input_embeddings().weight)  # type: ignore[operator]
    with pytest.raises(InputError, match=r"knows 512 tokens, the tokenizer has 513\n.*tokenizer of that model"):
        make_network(NetworkSettings(pretrained=tmp_path), Vocabulary.of_trained(513), longest=32)
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match="cannot load the model"):
        make_network(NetworkSettings(pretrained=tmp_path), VOCABULARY, longest=32)


@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=lambda config: config["model_type"])
def test_lora_goes_to_all_linear_layers_where_none_is_named(config: dict[str, Any]) -> None:
    adapted = network(config, lora=LoraSettings(r=2))
    trained = [name for name, weight in adapted.named_parameters() if weight.requires_grad]
    assert all("lora_" in name for name in trained)
    assert not any("lm_head" in name for name in trained)
    assert len(trained) == 2 * (4 if config is GPT2 else 7) * 2
    assert len(adapted.checkpoint_blocks) == 2


def test_models_that_mix_texts_of_a_row_are_refused() -> None:
    for config in (GPT2, LLAMA):
        model = network(config)
        model.train()
        check_rows(model, PackedRows(32))
        check_rows(model, PaddedRows())
        assert model.training
    with pytest.raises(InputError, match="a opt model does not keep packed texts apart"):
        check_rows(network(OPT), PackedRows(32))
    check_rows(network(OPT), PaddedRows())


def test_models_that_look_ahead_are_refused() -> None:
    model = network(BERT)
    check_rows(model, PaddedRows())
    for layer in model.modules():
        if hasattr(layer, "is_causal"):
            layer.is_causal = False
    model.config.is_decoder = False
    with pytest.raises(InputError, match="what stands behind a text changes what a bert model says of it"):
        check_rows(model, PaddedRows())


def test_an_adapter_names_the_folder_where_its_base_really_lies(tmp_path: Path) -> None:
    """B41: ``current`` leads elsewhere after the next run."""
    network(GPT2).save_pretrained(tmp_path / "first")
    (tmp_path / "current").symlink_to("first")
    settings = NetworkSettings(pretrained=str(tmp_path / "current"), lora=LoraSettings(target_modules=["c_attn"]))
    adapted = make_network(settings, VOCABULARY, longest=32)
    assert adapted.peft_config["default"].base_model_name_or_path == str((tmp_path / "first").resolve())
