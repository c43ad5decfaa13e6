"""The runtime section: where a run writes, on what it runs, and how often it tells."""

from __future__ import annotations

from typing import Annotated, Literal

from solarwm.config.marks import Location
from solarwm.config.strict import (
    Count,
    Device,
    Listed,
    Positive,
    PositiveInt,
    Section,
    Text,
    section,
)

TrackerMode = Literal["off", "online", "offline"]


class TrackersSection(Section):
    """Views of the event stream beside the terminal; all optional."""

    tensorboard: TrackerMode = "off"
    """TensorBoard files under the run directory; `online` and `offline` both write them."""
    wandb: TrackerMode = "off"
    """Weights & Biases; `offline` keeps the run on this disk."""
    trackio: TrackerMode = "off"
    """Trackio; `offline` keeps the run on this disk."""


class RuntimeSection(Section):
    """Where a run writes, on what it runs, and how often it tells."""

    output_dir: Annotated[Text, Location()]
    """Run directory. A relative path is kept as written and taken from the working directory at
    launch; `~` is expanded."""
    image: str | None = None
    """Container image the run is meant for, recorded in the launch manifest."""
    enforce_image: bool = False
    """Refuse to start unless `image` names a digest (`name@sha256:...`)."""
    require_clean_source: bool = False
    """Refuse to start from a source tree with uncommitted changes."""
    device: Device = "auto"
    """Device by name."""
    trackers: TrackersSection = section()
    """Optional trackers."""
    log_every: PositiveInt = 1
    """Optimizer steps between progress lines and tracker points; events record every step."""
    threads_per_rank: PositiveInt | None = None
    """CPU threads of each rank; null = cores shared evenly among the local ranks."""


class CadenceRuntime(RuntimeSection):
    """Runtime of the Wan families, which keep the save and validation cadence here."""

    compile_flex: bool = False
    """Compile block-sparse attention. The published causal training runs need it; on a CPU leave it
    off."""
    compile_blocks: bool = False
    """Compile each transformer block (`torch.compile`); needs a C++ compiler or Triton."""
    save_every: Count = 500
    """Optimizer steps between checkpoints. 0 = off."""
    validate_every: Count = 0
    """Optimizer steps between validations. 0 = off."""
    validation_steps: Listed[Count] = ()
    """Further steps at which to validate."""
    max_steps_override: PositiveInt | None = None
    """End after this many steps instead of `train.max_steps`; the schedule is unchanged."""
    data_cache_dir: Annotated[str | None, Location(absolute=True)] = None
    """Local cache of training shards from a bucket; only with a bucket transport."""
    data_cache_max_gib: Positive | None = None
    """Largest size of that cache in GiB."""
    validation_cache_dir: Annotated[str | None, Location(absolute=True)] = None
    """Separate cache of validation shards; together with the next field."""
    validation_cache_max_gib: Positive | None = None
    """Largest size of the validation cache in GiB."""
    resume_from: Annotated[str | None, Location(absolute=True, actions=("train",))] = None
    """Checkpoint directory that Stage2 resumes from; null = a new run."""
