"""What training validates is what `infer` makes of the checkpoint of the same step, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

INFER = Path(__file__).parents[2] / "configs" / "examples" / "quickstart" / "infer.yaml"
PASSES = json.dumps(
    [
        {"name": "live", "weights": "live", "num_inference_steps": 2},
        {"name": "ema", "weights": "ema", "num_inference_steps": 2, "solver": "euler"},
    ]
)
STEP = 2


def _clips(generation: Path) -> dict[str, tuple[str, str]]:
    """Digests of the latents and of the video, by pass and slot."""
    found = {}
    for path in sorted(generation.glob("*/slot-*/manifest.json")):
        manifest = json.loads(path.read_bytes())
        video = next(a for a in manifest["artifacts"] if a["path"].endswith("/video.mp4"))
        name = f"{path.parts[-3]}/{path.parts[-2]}"
        found[name] = (manifest["metrics"]["latents_digest"], video["digest"])
    return found


@pytest.mark.parametrize(
    ("world_size", "cases", "sharing", "more"),
    [
        (1, 2, (), ()),
        (2, 2, ("train.fsdp.strategy=NO_SHARD", "train.fsdp.param_dtype=bfloat16"), ()),
        (2, 1, ("train.fsdp.strategy=FULL_SHARD", "train.fsdp.param_dtype=bfloat16"), ()),
        (2, 1, (), ("distributed.sequence_parallel_size=2", "train.grad_accum=2")),
    ],
    ids=["one rank", "replicated bf16", "sharded bf16, a rank without a case", "sequence parallel"],
)
def test_validation_at_a_step_equals_infer_from_the_checkpoint_of_that_step(
    warm,
    tmp_path: Path,
    world_size: int,
    cases: int,
    sharing: tuple[str, ...],
    more: tuple[str, ...],
) -> None:
    shown = (f"validation.passes={PASSES}", f"validation.sample_count={cases}")
    trained = warm.train(
        tmp_path / "training",
        *shown,
        *sharing,
        *more,
        "train.max_steps=3",
        "train.ema.decay=0.5",
        f"runtime.validate_every={STEP}",
        world_size=world_size,
    )
    assert trained.codes == [0] * world_size, trained.texts
    world = next(
        text.removeprefix("data.index_root=")
        for text in warm.settings(tmp_path, 1, ())
        if text.startswith("data.index_root=")
    )
    sets = [
        *shown,
        *sharing,
        f"data.index_root={world}",
        f"data.transport.root={world}",
        "data.pixel_frames=33",
        "distributed.world_size=1",
        f"checkpoint.path={trained.root / f'checkpoint_model_{STEP:06d}'}",
        f"runtime.output_dir={tmp_path / 'generation'}",
    ]
    words = [word for value in sets for word in ("--set", value)]
    ended = warm.launch(tmp_path / "generation", ["infer", "--config", str(INFER), *words])
    assert ended.codes == [0], ended.texts
    validated = _clips(trained.root / "validation" / f"step_{STEP:06d}")
    assert len(validated) == 2 * cases
    assert validated["live/slot-000000"] != validated["ema/slot-000000"]
    assert _clips(tmp_path / "generation" / "generation") == validated
