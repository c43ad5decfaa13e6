"""Wan2.2 TI2V-5B in plain values: sizes, latent geometry, what to shard and adapt."""

from __future__ import annotations

from solarwm.routes.spec import BackboneSpec, LatentGeometry, ModelDims, Profile

GEOMETRY = LatentGeometry(
    channels=48,
    spatial_stride=16,
    first_frames=1,
    first_latents=1,
    period_frames=4,
    period_latents=1,
    size_multiple=32,
)


def _small_dims(dim: int, ffn_dim: int) -> ModelDims:
    return ModelDims(
        dim=dim,
        num_layers=6,
        num_heads=4,
        ffn_dim=ffn_dim,
        in_channels=48,
        out_channels=48,
        patch=(1, 1, 1),
        text_dim=64,
        text_len=16,
        freq_dim=64,
    )


RELEASED = Profile(
    name="released",
    dims=ModelDims(
        dim=3072,
        num_layers=30,
        num_heads=24,
        ffn_dim=14336,
        in_channels=48,
        out_channels=48,
        patch=(1, 2, 2),
        text_dim=4096,
        text_len=512,
        freq_dim=256,
    ),
    geometry=GEOMETRY,
    default_height=480,
    default_width=864,
    default_frames=81,
)
TINY = Profile(
    name="tiny",
    dims=_small_dims(128, 384),
    geometry=GEOMETRY,
    default_height=64,
    default_width=96,
    default_frames=33,
)
SMALL = Profile(
    name="small",
    dims=_small_dims(192, 576),
    geometry=GEOMETRY,
    default_height=64,
    default_width=96,
    default_frames=81,
)

SPEC = BackboneSpec(
    family="wan22_ti2v_5b",
    title="Wan2.2 TI2V-5B",
    aliases=("wan22_ti2v_5b", "wan2.2-ti2v-5b"),
    heavy="solarwm.backbones.wan22_5b.backbone:create",
    time_convention="sigma",
    training_shift=5.0,
    chunk_latents=3,
    camera_transforms=("linear", "logd4"),
    first_frame_anchored=True,
    block_class="WanBlock",
    lora_targets=(
        *(f"{attention}.{leaf}" for attention in ("self_attn", "cross_attn") for leaf in "qkvo"),
        "ffn.0",
        "ffn.2",
    ),
    fp32_parameters=(),
    profiles={profile.name: profile for profile in (RELEASED, TINY, SMALL)},
)
