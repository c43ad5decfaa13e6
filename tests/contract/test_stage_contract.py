"""Every route that runs trains through its stage: one update of each role moves that role and no other."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from solarwm.backbones.wan22_5b.backbone import create
from solarwm.backbones.wan22_5b.spec import SPEC
from solarwm.data.tensors import LatentBatch
from solarwm.distributed.sharding import Replicated
from solarwm.objectives import anyflow, self_gradient_forcing
from solarwm.training.fields import TeacherForcedMap
from solarwm.training.self_forcing_stage import SelfForcingStage
from solarwm.training.stage import SingleRoleStage

MODEL = SimpleNamespace(
    family="wan22_ti2v_5b", timestep_shift=5.0, numerics="auto", max_prior_clean_chunks=1
)
ALONE = SimpleNamespace(
    world_size=1, place=SimpleNamespace(dp_world=1, dp_rank=0, sp_world=1, sp_rank=0, sp_size=1)
)


def clips(count=2, frames=9):
    dims = SPEC.profiles["tiny"].dims
    generator = torch.Generator().manual_seed(0)
    return LatentBatch(
        latents_BFCHW=torch.randn(count, frames, dims.in_channels, 2, 2, generator=generator),
        text_BTD=torch.randn(count, dims.text_len, dims.text_dim, generator=generator),
        viewmats_BF44=torch.eye(4).repeat(count, frames, 1, 1),
        intrinsics_B33=torch.eye(3).repeat(count, 1, 1),
        sample_ids=("a", "b")[:count],
        start_frames=(0,) * count,
        slots=tuple(range(count)),
        occurrences=tuple(range(count)),
    )


def role(name, module):
    return SimpleNamespace(name=name, module=module, layout=Replicated(group=ALONE), ema=None)


def modules(gates):
    backbone = create(SPEC.profiles["tiny"], MODEL)
    made = [
        backbone.build(device="cpu", seed=seed, endpoint_gate=gate)
        for seed, gate in enumerate(gates)
    ]
    for module in made:
        with torch.no_grad():
            module.head.head.weight.normal_(std=0.02)
    return backbone, made


def moved(module):
    return [name for name, p in module.named_parameters() if p.grad is not None and p.grad.any()]


def test_a_flow_map_step_reaches_every_parameter_and_lowers_its_loss():
    backbone, (module,) = modules([0.25])
    train = SimpleNamespace(
        anyflow_epsilon=5.0,
        anyflow_diffusion_ratio=0.5,
        anyflow_consistency_ratio=0.25,
        anyflow_fuse_guidance_scale=2.0,
        global_batch_size=4,
    )
    negative = torch.zeros(1, *clips().text_BTD.shape[1:])
    stage = SingleRoleStage(
        backbone=backbone,
        objective=anyflow.create(SimpleNamespace(model=MODEL, train=train)),
        role=role("student", module),
        seed=0,
        global_batch_size=2,
        autocast=None,
        group=ALONE,
        open_field=lambda m, b: TeacherForcedMap(backbone, m, b, negative_1TD=negative),
    )
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)
    course = []
    for _ in range(6):
        (update,) = stage.updates(0)
        result = update.backward(clips())
        course.append(float(result.per_sample_B.mean()))
        assert set(update.loss_names) <= set(result.metrics)
        optimizer.step()
        if len(course) > 1:
            assert any(name.startswith("delta_embedding") for name in moved(module))
        optimizer.zero_grad()
    assert course[-1] < course[0]


@pytest.mark.parametrize("policy", ["drop", "keep_diagonal", "keep_consistency"])
def test_each_role_of_a_self_forced_stage_moves_alone(policy):
    gate = None if policy == "drop" else 0.25
    backbone, (student, critic, teacher) = modules([gate, None, None])
    teacher.requires_grad_(False)
    train = SimpleNamespace(
        exit_scope="auto",
        last_step_only=False,
        denoising_step_list=(1000, 750, 500, 250),
        score_min_timestep=20.0,
        score_max_timestep=980.0,
        real_guidance_scale=3.0,
        fake_guidance_scale=0.0,
        guidance_convention="conditional",
        critic_updates_per_student=1,
    )
    stage = SelfForcingStage(
        backbone=backbone,
        objective=self_gradient_forcing.create(SimpleNamespace(model=MODEL, train=train)),
        student=role("student", student),
        critic=role("critic", critic),
        teacher=teacher,
        negative_1TD=torch.zeros(1, *clips().text_BTD.shape[1:]),
        delta_policy=policy,
        seed=0,
        global_batch_size=2,
        autocast=None,
        group=ALONE,
    )
    assert [update.role.name for update in stage.updates(0)] == ["critic"]
    first, second = stage.updates(1)
    result = first.backward(clips())
    assert bool(torch.isfinite(result.per_sample_B).all())
    assert "blocks.0.self_attn.k.weight" in moved(student)
    assert (moved(critic), moved(teacher)) == ([], [])
    student.zero_grad()
    second.backward(clips())
    assert "blocks.0.self_attn.k.weight" in moved(critic)
    assert (moved(student), moved(teacher)) == ([], [])
    assert [stage.updates_before(n) for n in range(4)] == [0, 1, 3, 5]
