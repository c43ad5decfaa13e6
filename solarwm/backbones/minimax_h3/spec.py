"""MiniMax-H3 in plain values: sizes, latent geometry, what to shard, adapt and keep in fp32."""

from __future__ import annotations

from solarwm.routes.spec import BackboneSpec, LatentGeometry, ModelDims, Profile

GEOMETRY = LatentGeometry(
    channels=24,
    spatial_stride=16,
    first_frames=5,
    first_latents=2,
    period_frames=17,
    period_latents=5,
    size_multiple=32,
)

RELEASED = Profile(
    name="released",
    dims=ModelDims(
        dim=5376,
        attention_dim=7168,
        num_layers=50,
        num_heads=56,
        ffn_dim=14336,
        in_channels=24,
        out_channels=24,
        patch=(1, 2, 2),
        text_dim=5120,
        text_len=1100,
        freq_dim=256,
    ),
    geometry=GEOMETRY,
    default_height=768,
    default_width=1344,
    default_frames=158,
    extras={
        "adapter_rank": 384,
        "adapter_target_linears": 312,
        "adapter_trainable_parameters": 2_075_394_048,
        "refiner_layers": 2,
        "audio_channels": 32,
        "time_hidden_dim": 5376,
        "time_dim": 2688,
        "rope_freq_dim": 16,
    },
)
TINY = Profile(
    name="tiny",
    dims=ModelDims(
        dim=96,
        attention_dim=128,
        num_layers=4,
        num_heads=4,
        ffn_dim=192,
        in_channels=24,
        out_channels=24,
        patch=(1, 2, 2),
        text_dim=64,
        text_len=16,
        freq_dim=64,
    ),
    geometry=GEOMETRY,
    default_height=64,
    default_width=96,
    default_frames=39,
    extras={
        "adapter_rank": 8,
        "adapter_target_linears": 30,
        "adapter_trainable_parameters": 5 * 8 * (4 * (96 + 128) + (96 + 384) + (192 + 96)),
        "refiner_layers": 1,
        "audio_channels": 32,
        "time_hidden_dim": 96,
        "time_dim": 48,
        "rope_freq_dim": 4,
    },
)

SPEC = BackboneSpec(
    family="minimax_h3",
    title="MiniMax-H3",
    aliases=("minimax_h3", "minimax-h3"),
    heavy="solarwm.backbones.minimax_h3.backbone:create",
    time_convention="reverse",
    training_shift=12.0,
    chunk_latents=5,
    camera_transforms=("logd4",),
    first_frame_anchored=False,
    block_class="MiniMaxH3TransformerBlock",
    lora_targets=(
        "attn.to_q",
        "attn.to_k",
        "attn.to_v",
        "attn.to_out.0",
        "ff.net.0.proj",
        "ff.net.2",
    ),
    fp32_parameters=(
        "proj_in",
        "audio_proj_in",
        "time_embedder.linear_1",
        "time_embedder.linear_2",
        "proj_out",
        "audio_proj_out",
    ),
    profiles={profile.name: profile for profile in (RELEASED, TINY)},
)
