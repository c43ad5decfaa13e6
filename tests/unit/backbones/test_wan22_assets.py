"""Published autoencoder and text encoder files: names, sizes, safety, against the libraries' models."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.backbones.wan22_core.codec import files_digest, open_codec
from solarwm.backbones.wan22_core.codec_names import (
    text_from_transformers,
    text_to_transformers,
    vae_from_diffusers,
    vae_to_diffusers,
)
from solarwm.backbones.wan22_core.umt5 import cleaned, open_umt5
from solarwm.backbones.wan22_core.vae import MEAN_48, STD_48, build_vae, open_vae
from solarwm.errors.types import FaultList, SolarError

CPU = torch.device("cpu")
SMALL_22 = {
    "base_dim": 8,
    "decoder_base_dim": 8,
    "z_dim": 48,
    "dim_mult": [1, 2, 4, 4],
    "num_res_blocks": 2,
    "temperal_downsample": [False, True, True],
    "is_residual": True,
    "in_channels": 12,
    "out_channels": 12,
    "patch_size": 2,
    "scale_factor_spatial": 16,
    "scale_factor_temporal": 4,
    "latents_mean": list(MEAN_48),
    "latents_std": list(STD_48),
}
SMALL_21 = {"base_dim": 8, "decoder_base_dim": 8}


def vae_of(arguments):
    torch.manual_seed(0)
    return build_vae(arguments)


def published(vae, arguments):
    return {
        vae_from_diffusers(
            name, res_blocks=2, nested=bool(arguments.get("is_residual"))
        ): value.clone()
        for name, value in vae.state_dict().items()
    }


@pytest.mark.parametrize("arguments", [SMALL_22, SMALL_21], ids=["2.2", "2.1"])
@pytest.mark.parametrize("layout", ["published", "diffusers"])
def test_an_autoencoder_is_opened_from_both_layouts(arguments, layout, tmp_path):
    vae = vae_of(arguments)
    if layout == "published":
        path = tmp_path / "Wan_VAE.pth"
        torch.save(published(vae, arguments), path)
    else:
        path = tmp_path / "vae"
        vae.save_pretrained(path)
    opened = open_vae(path)
    assert {k: v for k, v in opened.config.items() if k[0] != "_"} == {
        k: v for k, v in vae.config.items() if k[0] != "_"
    }
    video = torch.rand(1, 3, 5, 32, 32) * 2 - 1
    latents = vae.encode(video).latent_dist.mode()
    assert torch.equal(opened.encode(video).latent_dist.mode(), latents)
    assert torch.equal(opened.decode(latents).sample, vae.decode(latents).sample)


@pytest.mark.parametrize("arguments", [SMALL_22, SMALL_21], ids=["2.2", "2.1"])
def test_autoencoder_names_go_out_and_in(arguments):
    for name in vae_of(arguments).state_dict():
        out = vae_from_diffusers(name, res_blocks=2, nested=bool(arguments.get("is_residual")))
        assert out is not None, name
        assert vae_to_diffusers(out, res_blocks=2) == name


def test_names_of_2_1_agree_with_the_library():
    from diffusers.loaders.single_file_utils import convert_wan_vae_to_diffusers

    state = published(vae_of(SMALL_21), SMALL_21)
    assert set(convert_wan_vae_to_diffusers(dict(state))) == {
        vae_to_diffusers(name, res_blocks=2) for name in state
    }


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("conv1.weight", "quant_conv.weight"),
        ("conv2.bias", "post_quant_conv.bias"),
        ("encoder.conv1.weight", "encoder.conv_in.weight"),
        ("decoder.head.0.gamma", "decoder.norm_out.gamma"),
        ("encoder.middle.0.residual.0.gamma", "encoder.mid_block.resnets.0.norm1.gamma"),
        ("decoder.middle.2.residual.3.gamma", "decoder.mid_block.resnets.1.norm2.gamma"),
        ("encoder.middle.1.to_qkv.weight", "encoder.mid_block.attentions.0.to_qkv.weight"),
        (
            "encoder.downsamples.0.downsamples.0.residual.2.weight",
            "encoder.down_blocks.0.resnets.0.conv1.weight",
        ),
        (
            "encoder.downsamples.1.downsamples.0.shortcut.weight",
            "encoder.down_blocks.1.resnets.0.conv_shortcut.weight",
        ),
        (
            "encoder.downsamples.1.downsamples.2.time_conv.weight",
            "encoder.down_blocks.1.downsampler.time_conv.weight",
        ),
        (
            "decoder.upsamples.1.upsamples.2.residual.6.bias",
            "decoder.up_blocks.1.resnets.2.conv2.bias",
        ),
        (
            "decoder.upsamples.0.upsamples.3.resample.1.weight",
            "decoder.up_blocks.0.upsampler.resample.1.weight",
        ),
    ],
)
def test_names_of_2_2_are_the_published_ones(theirs, ours):
    assert vae_to_diffusers(theirs, res_blocks=2) == ours
    assert vae_from_diffusers(ours, res_blocks=2, nested=True) == theirs


def umt5():
    from transformers import UMT5Config, UMT5EncoderModel

    torch.manual_seed(0)
    config = UMT5Config(
        vocab_size=40,
        d_model=16,
        d_kv=4,
        d_ff=24,
        num_layers=3,
        num_heads=4,
        relative_attention_num_buckets=8,
    )
    return UMT5EncoderModel(config).eval()


@pytest.mark.parametrize("layout", ["published", "transformers"])
def test_a_text_encoder_is_opened_from_both_layouts(layout, tmp_path):
    model = umt5()
    if layout == "published":
        path = tmp_path / "models_t5_umt5-xxl-enc-bf16.pth"
        state = {
            text_from_transformers(name): value.clone()
            for name, value in model.state_dict().items()
            if name != "encoder.embed_tokens.weight"
        }
        torch.save(state, path)
    else:
        path = tmp_path / "text_encoder"
        model.save_pretrained(path)
    opened = open_umt5(path)
    ids = torch.tensor([[3, 9, 12, 1, 0, 0], [7, 1, 0, 0, 0, 0]])
    mask = (ids > 0).long()
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=mask).last_hidden_state
        assert torch.equal(opened(input_ids=ids, attention_mask=mask).last_hidden_state, expected)


def test_text_encoder_names_go_out_and_in():
    for name in umt5().state_dict():
        if name == "encoder.embed_tokens.weight":
            continue
        out = text_from_transformers(name)
        assert out is not None, name
        assert text_to_transformers(out) == name
    assert text_to_transformers("blocks.3.ffn.gate.0.weight") == (
        "encoder.block.3.layer.1.DenseReluDense.wi_0.weight"
    )


def tokenizer(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, "</s>": 1, "<unk>": 2, "a": 3, "red": 4, "room": 5, "&": 6}
    core = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)


def test_the_released_codec_encodes_text_and_video_from_files(tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    torch.save(published(vae_of(SMALL_22), SMALL_22), base / "vae.pth")
    model = umt5()
    model.save_pretrained(base / "text")
    tokenizer(base / "tokenizer")
    assets = SimpleNamespace(vae="vae.pth", text_encoder="text", tokenizer="tokenizer")
    released = SPEC.profiles["released"]
    codec = open_codec(released, SPEC, base_path=base, assets=assets, device=CPU)
    states = codec.encode_text([" a  red\nroom ", "room"])
    assert states.shape == (2, 512, 16)
    ids = torch.tensor([[3, 4, 5, 1]])
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    torch.testing.assert_close(states[:1, :4], expected, atol=1e-5, rtol=1e-5)
    assert states[0, 4:].abs().max() == 0
    pixels = torch.randint(0, 256, (5, 32, 64, 3), dtype=torch.uint8)
    latents = codec.encode_video(pixels)
    assert latents.shape == (2, 48, 2, 4)
    assert codec.decode_video(latents).shape == pixels.shape


def test_prompts_are_cleaned_as_published():
    from diffusers.pipelines.wan.pipeline_wan import prompt_clean

    assert cleaned("  a\t red &amp;amp; blue\n room ") == "a red & blue room"
    for text in (
        "a \u201cquiet\u201d caf\xc3\xa9",
        "\u8272\u8c03\u8273\u4e3d\uff0c\u8fc7\u66dd",
        "\uff37\uff21\uff2e",
        "plain",
    ):
        assert cleaned(text) == prompt_clean(text)
    assert cleaned("\u8272\uff0c\u8fc7") == "\u8272,\u8fc7"


def test_pickled_objects_are_never_run(tmp_path):
    class Attack:
        def __reduce__(self):
            return (print, ("run",))

    path = tmp_path / "vae.pth"
    path.write_bytes(pickle.dumps({"conv1.weight": Attack()}))
    with pytest.raises(SolarError) as caught:
        open_vae(path)
    assert caught.value.code == "weights.unreadable"


@pytest.mark.parametrize("fault", ["missing", "nan", "shape", "other"])
def test_a_wrong_autoencoder_is_refused(fault, tmp_path):
    state = published(vae_of(SMALL_22), SMALL_22)
    if fault == "missing":
        del state["decoder.head.2.weight"]
        code = "weights.missing-tensors"
    elif fault == "nan":
        state["decoder.head.2.weight"][0] = torch.nan
        code = "weights.nonfinite"
    elif fault == "shape":
        state["decoder.head.2.bias"] = torch.zeros(3)
        code = "weights.shape"
    else:
        state = {"encoder.middle.0.x": torch.zeros(1)}
        code = "weights.no-match"
    path = tmp_path / "vae.pth"
    torch.save(state, path)
    with pytest.raises((SolarError, FaultList)) as caught:
        open_vae(path)
    assert caught.value.exit_code == 3
    assert caught.value.code == code


def test_the_autoencoder_of_another_family_is_refused(tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    torch.save(published(vae_of(SMALL_21), SMALL_21), base / "vae.pth")
    (base / "text").mkdir()
    (base / "tokenizer").mkdir()
    assets = SimpleNamespace(vae="vae.pth", text_encoder="text", tokenizer="tokenizer")
    codec = open_codec(SPEC.profiles["released"], SPEC, base_path=base, assets=assets, device=CPU)
    with pytest.raises(SolarError, match="another model") as caught:
        codec.encode_video(torch.zeros(5, 32, 32, 3, dtype=torch.uint8))
    assert "(48, 16, 4)" in caught.value.why
    assert "(16, 8, 4)" in caught.value.why


def test_the_digest_follows_the_bytes(tmp_path):
    save_file({"a": torch.zeros(4)}, tmp_path / "a.safetensors")
    first = files_digest([tmp_path])
    assert files_digest([tmp_path]) == first
    save_file({"a": torch.ones(4)}, tmp_path / "a.safetensors")
    assert files_digest([tmp_path]) != first
