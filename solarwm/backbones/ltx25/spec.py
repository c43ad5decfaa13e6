"""LTX-2.5 (video stream) in plain values: sizes, latent geometry, what to shard, adapt and keep in
fp32."""

from __future__ import annotations

from solarwm.routes.spec import BackboneSpec, LatentGeometry, ModelDims, Profile

GEOMETRY = LatentGeometry(
    channels=128,
    spatial_stride=32,
    first_frames=1,
    first_latents=1,
    period_frames=8,
    period_latents=1,
    size_multiple=32,
)
LORA_LEAVES = (
    *(
        f"{attention}.{leaf}"
        for attention in ("attn1", "attn2")
        for leaf in ("to_q", "to_k", "to_v", "to_out.0")
    ),
    "ff.net.0.proj",
    "ff.net.2",
)

RELEASED = Profile(
    name="released",
    dims=ModelDims(
        dim=4096,
        num_layers=48,
        num_heads=32,
        ffn_dim=16384,
        in_channels=128,
        out_channels=128,
        patch=(1, 1, 1),
        text_dim=4096,
        text_len=1024,
        freq_dim=256,
    ),
    geometry=GEOMETRY,
    default_height=512,
    default_width=768,
    default_frames=153,
    extras={
        "adapter_rank": 384,
        "adapter_target_linears": 480,
        "adapter_trainable_parameters": 1_962_934_272,
        "connector_layers": 8,
        "connector_registers": 128,
        "core_tensors": 1362,
        "core_parameters": 13_123_337_344,
        "skip_block": 28,
    },
)
TINY = Profile(
    name="tiny",
    dims=ModelDims(
        dim=128,
        num_layers=4,
        num_heads=4,
        ffn_dim=512,
        in_channels=128,
        out_channels=128,
        patch=(1, 1, 1),
        text_dim=128,
        text_len=32,
        freq_dim=256,
    ),
    geometry=GEOMETRY,
    default_height=64,
    default_width=96,
    default_frames=33,
    extras={
        "adapter_rank": 8,
        "adapter_target_linears": 40,
        "connector_layers": 2,
        "connector_registers": 16,
        "skip_block": 2,
    },
)

SPEC = BackboneSpec(
    family="ltx25_video",
    title="LTX-2.5",
    aliases=("ltx25_video", "ltx-2.5"),
    heavy="solarwm.backbones.ltx25.backbone:create",
    time_convention="sigma",
    training_shift=None,
    chunk_latents=1,
    camera_transforms=("linear", "logd4"),
    first_frame_anchored=True,
    block_class="LTX2VideoTransformerBlock",
    lora_targets=LORA_LEAVES,
    fp32_parameters=("scale_shift_table", "prompt_scale_shift_table"),
    profiles={profile.name: profile for profile in (RELEASED, TINY)},
)
