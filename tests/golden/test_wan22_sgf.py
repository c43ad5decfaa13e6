"""The two losses of the published Stage2 step against stored numbers, first frame given."""

from __future__ import annotations

import torch

from solarwm.objectives.distribution_matching import (
    FROM_CONDITIONAL,
    critic_loss,
    guided,
    matching_gradient,
    matching_loss,
)


def test_losses(golden):
    file = golden("wan22_sgf.safetensors")
    output = file["student_x0"].clone().requires_grad_()
    mask = torch.ones(output.shape[:2], dtype=torch.bool)
    mask[:, 0] = False
    real = guided(
        file["real_cond_x0"],
        file["real_uncond_x0"],
        float(file["real_guidance"]),
        FROM_CONDITIONAL,
    )
    file.compare("real_x0", real)
    asked = matching_gradient(output, file["fake_x0"], real, mask)
    file.compare("normalizer", asked.normaliser_B[:, None, None, None, None])
    file.compare("gradient", asked.gradient_BFCHW)
    loss = matching_loss(output, asked.gradient_BFCHW, mask).mean()
    loss.backward()
    file.compare("student_loss", loss.detach())
    file.compare("student_loss_grad", output.grad)
    critic = critic_loss(file["critic_flow"], output.detach(), file["noise"], mask)
    file.compare("critic_loss", critic.mean())
