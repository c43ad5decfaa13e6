"""Wan2.2 I2V-A14B (high-noise expert) in plain values: sizes, latent geometry, what to shard and
adapt."""

from __future__ import annotations

from solarwm.routes.spec import BackboneSpec, LatentGeometry, ModelDims, Profile

GEOMETRY = LatentGeometry(
    channels=16,
    spatial_stride=8,
    first_frames=1,
    first_latents=1,
    period_frames=4,
    period_latents=1,
    size_multiple=32,
)

RELEASED = Profile(
    name="released",
    dims=ModelDims(
        dim=5120,
        num_layers=40,
        num_heads=40,
        ffn_dim=13824,
        in_channels=36,
        out_channels=16,
        patch=(1, 2, 2),
        text_dim=4096,
        text_len=512,
        freq_dim=256,
    ),
    geometry=GEOMETRY,
    default_height=480,
    default_width=832,
    default_frames=81,
)
TINY = Profile(
    name="tiny",
    dims=ModelDims(
        dim=128,
        num_layers=4,
        num_heads=4,
        ffn_dim=384,
        in_channels=36,
        out_channels=16,
        patch=(1, 2, 2),
        text_dim=64,
        text_len=16,
        freq_dim=64,
    ),
    geometry=GEOMETRY,
    default_height=64,
    default_width=96,
    default_frames=33,
)

SPEC = BackboneSpec(
    family="wan22_i2v_a14b",
    title="Wan2.2 I2V-A14B",
    aliases=("wan22_i2v_a14b", "wan2.2-i2v-a14b"),
    heavy="solarwm.backbones.wan22_a14b.backbone:create",
    time_convention="sigma",
    training_shift=3.0,
    chunk_latents=3,
    camera_transforms=("linear", "logd4"),
    first_frame_anchored=False,
    block_class="WanBlock",
    lora_targets=(
        *(f"{attention}.{leaf}" for attention in ("self_attn", "cross_attn") for leaf in "qkvo"),
        "ffn.0",
        "ffn.2",
    ),
    fp32_parameters=(),
    profiles={profile.name: profile for profile in (RELEASED, TINY)},
)
