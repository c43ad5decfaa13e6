"""The whole chain on one machine: render a world, train in two processes, stop, resume, generate,
measure, report.

Run by `make quickstart`. Every step is an ordinary command, printed before it runs; what is there
already in the output directory is kept, so a second call goes on where the first one ended.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
CONFIGS = REPOSITORY / "configs" / "examples" / "quickstart"
FRAMES, HEIGHT, WIDTH, WORLD_SEED = 81, 64, 96, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How large a quickstart is."""

    train_config: Path
    infer_config: Path
    clips: int
    stop_after: int
    """Optimizer step at which the first training process group ends."""
    noise_seeds: tuple[int, ...]
    train_settings: tuple[str, ...] = ()
    infer_settings: tuple[str, ...] = ()
    stage_settings: tuple[str, ...] = ()
    """Of Stage1, Stage2 and what they generate."""
    stage2_settings: tuple[str, ...] = ()


PROFILES = {
    "quick": Profile(
        train_config=CONFIGS / "stage0p5.yaml",
        infer_config=CONFIGS / "infer.yaml",
        clips=160,
        stop_after=100,
        noise_seeds=(42,),
        infer_settings=("--set", "validation.sample_count=8"),
    ),
    "long": Profile(
        train_config=CONFIGS / "stage0p5-long.yaml",
        infer_config=CONFIGS / "infer-long.yaml",
        clips=800,
        stop_after=500,
        noise_seeds=(42, 43, 44),
        stage_settings=("--set", "model.profile=small"),
        stage2_settings=("--set", "train.max_steps=150", "--set", "runtime.save_every=150"),
    ),
}
LONG_CLIPS, LONG_FRAMES = 8, 333
"""A second world for the long rollout: two held-out clips four times as long as those of training."""


@dataclass(slots=True)
class Chain:
    """Runs commands one after another and remembers how long each took."""

    taken_s: list[tuple[str, float]] = field(default_factory=list)

    def step(self, title: str, command: list[str], *, run_path: Path | None = None) -> None:
        """Print and run one command; a failure ends the quickstart with the run's own code."""
        print(f"\n== {title}\n$ {shlex.join(command)}", flush=True)
        started = time.monotonic()
        environment = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", **os.environ}
        done = subprocess.run(command, check=False, env=environment)
        self.taken_s.append((title, time.monotonic() - started))
        if done.returncode:
            code = _run_code(run_path) or done.returncode
            print(f"\n{title} failed with code {code}", file=sys.stderr)
            raise SystemExit(code)

    @property
    def total_s(self) -> float:
        """Seconds of all steps."""
        return sum(seconds for _, seconds in self.taken_s)


def main() -> None:
    """Run the chain of the chosen profile."""
    parser = argparse.ArgumentParser(
        description="Render, train, resume, generate, report: the whole chain on one machine."
    )
    parser.add_argument("--profile", choices=sorted(PROFILES), default="quick")
    parser.add_argument("--out", type=Path, default=Path("outputs/quickstart"))
    parser.add_argument("--steps", type=int, help="optimizer steps, in place of the config's")
    parser.add_argument("--clips", type=int, help="clips to render, in place of the profile's")
    parser.add_argument("--sample-count", type=int, help="held-out clips to generate")
    arguments = parser.parse_args()
    profile = PROFILES[arguments.profile]
    out = arguments.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    chain = Chain()
    world = out / "world"
    render(chain, world, arguments.clips or profile.clips)
    places = ["--set", f"data.index_root={world}", "--set", f"data.transport.root={world}"]
    train(chain, profile, out / "training", places, arguments.steps)
    generations = [
        generate(chain, profile, out, places, seed, arguments.sample_count)
        for seed in profile.noise_seeds
    ]
    later = later_stages(chain, profile, out, places, arguments.steps, arguments.sample_count)
    report(chain, arguments.profile, out, generations, later)


def render(chain: Chain, world: Path, clips: int, *, frames: int = FRAMES) -> None:
    """Render the local world, unless it is there."""
    if (world / "test-index.jsonl.gz").exists():
        print(f"== The world is there: {world}")
        return
    sizes = ["--frames", str(frames), "--height", str(HEIGHT), "--width", str(WIDTH)]
    seed = ["--seed", str(WORLD_SEED), "--workers", "2"]
    command = [_tool("solarwm"), "data", "synthesize", "--out", str(world), "--clips", str(clips)]
    chain.step("Render a world", [*command, *sizes, *seed])


def train(chain: Chain, profile: Profile, root: Path, places: list[str], steps: int | None) -> None:
    """Train to `stop_after`, then resume to the end in new processes."""
    command = [*_launch("train"), "--config", str(profile.train_config), *places]
    command += ["--set", f"runtime.output_dir={root}", *profile.train_settings]
    stop_after = profile.stop_after
    if steps is not None:
        command += ["--set", f"train.max_steps={steps}"]
        stop_after = min(stop_after, max(1, steps // 4))
    if not list(root.glob("checkpoint_model_*")):
        first = [*command, "--stop-after", str(stop_after)]
        chain.step(f"Train in two processes, stop at step {stop_after}", first, run_path=root)
    chain.step("Resume to the end", [*command, "--resume", "latest"], run_path=root)


def generate(
    chain: Chain,
    profile: Profile,
    out: Path,
    places: list[str],
    seed: int,
    sample_count: int | None,
) -> Path:
    """Generate the held-out clips with every camera; gives the run directory."""
    root = out / (f"inference-seed-{seed}" if len(profile.noise_seeds) > 1 else "inference")
    command = [*_launch("infer"), "--config", str(profile.infer_config), *places]
    command += ["--set", f"checkpoint.path={out / 'training'}"]
    command += ["--set", f"runtime.output_dir={root}", "--set", f"validation.noise_seed={seed}"]
    command += profile.infer_settings
    if sample_count is not None:
        command += ["--set", f"validation.sample_count={sample_count}"]
    if (root / "generation" / "plan.json").exists():
        command.append("--resume")
    chain.step(f"Generate held-out clips, noise seed {seed}", command, run_path=root)
    return root


def later_stages(
    chain: Chain,
    profile: Profile,
    out: Path,
    places: list[str],
    steps: int | None,
    sample_count: int | None,
) -> dict[str, Path]:
    """Stage1 and Stage2 from what is trained already, and what each generates, by name."""
    base, flow_map, student = out / "training", out / "stage1", out / "stage2"
    length = [] if steps is None else ["--set", f"train.max_steps={max(2, steps // 4)}"]
    start = ["--set", f"checkpoint.path={base}"]
    roles = {"student": flow_map, "teacher": base, "critic": base}
    sources = [
        word
        for role, place in roles.items()
        for word in ("--set", f"checkpoint.roles.{role}.path={place}")
    ]
    self_forcing = [*sources, *profile.stage2_settings]
    for stage, root, more in (("stage1", flow_map, start), ("stage2", student, self_forcing)):
        command = [*_launch("train"), "--config", str(CONFIGS / f"{stage}.yaml"), *places]
        command += ["--set", f"runtime.output_dir={root}", *more, *length]
        command += profile.stage_settings
        command += ["--set", f"data.latent_cache_dir={base / 'latent-cache'}"]
        if list(root.glob("checkpoint_model_*")):
            command += ["--resume", "latest"]
        chain.step(f"Train {stage.title()}", command, run_path=root)
    world = out / "long-world"
    render(chain, world, LONG_CLIPS, frames=LONG_FRAMES)
    long = ["--set", f"data.index_root={world}", "--set", f"data.transport.root={world}"]
    short = [*places, "--set", f"validation.sample_count={sample_count or 8}"]
    few = [*long, "--set", "validation.sample_count=2"]
    made = {}
    for name, config, root, more in (
        ("Stage1", "infer-stage1.yaml", flow_map, short),
        ("Stage2", "infer-stage2-short.yaml", student, short),
        ("Stage2, four times as long", "infer-stage2.yaml", student, few),
    ):
        target = out / f"{Path(config).stem}"
        command = [*_launch("infer"), "--config", str(CONFIGS / config), *more]
        command += ["--set", f"checkpoint.path={root}", "--set", f"runtime.output_dir={target}"]
        command += profile.stage_settings
        if (target / "generation" / "plan.json").exists():
            command.append("--resume")
        chain.step(f"Generate with {name}", command, run_path=target)
        made[name] = target
    return made


def report(
    chain: Chain, name: str, out: Path, generations: list[Path], later: dict[str, Path]
) -> None:
    """Write index.html and a GIF, print the summary and where to look."""
    from rich.console import Console
    from rich.table import Table

    from solarwm.reports.facts import read_generation, read_training
    from solarwm.reports.gif import write_gif
    from solarwm.reports.html import write_report
    from solarwm.reports.stages import stage_rows, stage_table
    from solarwm.reports.summary import course_table, demand_table, quality_table

    training = read_training(out / "training")
    made = [read_generation(root) for root in generations]
    stages = {"Stage0.5": made[0], **{key: read_generation(root) for key, root in later.items()}}
    rows = [row for key, generation in stages.items() for row in stage_rows(key, generation)]
    page = out / "index.html"
    write_report(
        page,
        training,
        made,
        stages=rows,
        title="A world model, learned on this machine",
        lead="A small camera-controlled video model, trained on a rendered room and asked to drive "
        "along paths it has not seen. Pictures are measured against the exactly rendered truth, and against the "
        "same truth passed through the small VAE.",
    )
    own = [clip for clip in made[0].clips if clip.camera == "source"]
    if own:
        write_gif(own[0].folder / "compare.mp4", out / "sample.gif", every=3)
    console = Console()
    console.print()
    console.print(course_table(training))
    console.print(quality_table(made))
    console.print(demand_table(made))
    console.print(stage_table(rows))
    times = Table(title=f"Time, {name} profile", title_justify="left")
    times.add_column("step")
    times.add_column("seconds", justify="right")
    for title, seconds in chain.taken_s:
        times.add_row(title, f"{seconds:.0f}")
    times.add_row("all steps", f"{chain.total_s:.0f}")
    console.print(times)
    console.print(f"\nOpen {page}", highlight=False, soft_wrap=True)


def _launch(command: str) -> list[str]:
    return [_tool("torchrun"), "--standalone", "--nproc-per-node=2", "-m", "solarwm", command]


def _tool(name: str) -> str:
    """A console script of the environment this file runs in, as short as it can be written."""
    path = Path(sys.executable).parent / name
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _run_code(root: Path | None) -> int | None:
    if root is None:
        return None
    try:
        code = json.loads((root / "run-result.json").read_bytes()).get("exit_code")
    except (OSError, ValueError):
        return None
    return code if isinstance(code, int) else None


if __name__ == "__main__":
    main()
