"""Where weights come from, whatever wrote them: found, checked against what is expected, loaded.

A source is a training checkpoint of ours (or a run, meaning its newest one), a published package, a
`model.pt` with its config inside, or a bare weight file. Everything that can be refused is refused
before a model is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from solarwm.checkpoints.directory import find
from solarwm.checkpoints.manifest import MANIFEST_NAME, check_sizes, read_manifest, read_proven
from solarwm.checkpoints.packages import (
    CRITIC_NAME,
    MODEL_NAME,
    STANDARD_VARIANT,
    is_package,
    plain_contract,
    read_package,
)
from solarwm.errors.types import SolarError
from solarwm.storage.digests import blake2s_hex, canonical_json, file_blake2s

if TYPE_CHECKING:
    from torch import Tensor, nn

    from solarwm.backbones.seam import Backbone, CoverageReport

TRAINING, PACKAGE, FILE = "training", "package", "file"
_SUFFIXES = (".pt", ".pth", ".safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSource:
    """One source of weights, described without reading a tensor."""

    path: Path
    kind: str
    """`training` (a checkpoint of ours), `package` (published directory) or `file`."""
    identity: str
    """Names the content; a weights id is this with `#live` or `#ema`."""
    step: int | None = None
    contract: Mapping[str, str] = field(default_factory=dict[str, str])
    """What it was trained as (`packages.CONTRACT`), empty where nothing is recorded."""
    model: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The `model` section it was trained with, where recorded."""
    weights: tuple[str, ...] = ()
    """`live` and `ema` as far as it is known what the source holds."""
    default_weights: str | None = None
    """What a release note means by default."""
    numerics: str | None = None
    """Recorded numerics; None for published weights, which were made with `published`."""

    def weights_role(self, weights: str) -> str:
        """`live` or `ema`; `model` stands for what the release note means, else EMA if there is one."""
        if weights != "model":
            return weights
        return self.default_weights or ("ema" if "ema" in self.weights else "live")

    def weights_id(self, weights: str) -> str:
        """Identity of one role of these weights."""
        mark = "release-default:" if weights == "model" else ""
        return f"{self.identity}#{mark}{self.weights_role(weights)}"


def open_source(path: Path, *, role: str = "student") -> WeightSource:
    """The source meant by `path`. Reads manifests; of a bare `model.pt` also its embedded config.

    Raises `checkpoint.*` or `weights.*` (exit 3).
    """
    if path.is_file():
        return _file(path)
    if not path.is_dir():
        raise SolarError(
            "weights.missing",
            "there are no weights there",
            where=str(path),
            why="There is no such file or directory.",
        )
    if is_package(path):
        return _package(path)
    if (path / MODEL_NAME).is_file():
        return _file(path / MODEL_NAME)
    if any(path.glob("*.safetensors")):
        return _bare(path)
    return _training(find(path), role)


def require_source(
    source: WeightSource,
    *,
    expected: Mapping[str, str | None],
    weights: str,
    step: int | None = None,
    where: str | None = None,
) -> None:
    """Refuse (`checkpoint.source-mismatch`, exit 3) a source that is not what is expected.

    `expected` names fields of `packages.CONTRACT`; None is not compared, no variant is `standard`.
    A source that records nothing (a base model) fits nothing but an empty `expected`.
    """
    wanted = {name: value for name, value in expected.items() if value is not None}
    differing = [
        f"{name}: expected {value!r}, found {source.contract.get(name, 'nothing')!r}"
        for name, value in wanted.items()
        if source.contract.get(name) != value
    ]
    if step is not None and source.step != step:
        differing.append(f"step: expected {step}, found {source.step}")
    if differing:
        raise SolarError(
            "checkpoint.source-mismatch",
            f"the weights in {source.path.name} were made by another training than expected",
            where=where or str(source.path),
            why=f"{source.path}: " + "; ".join(differing) + ".",
            fixes=["Name the source that the config expects, or mend what it expects."],
            context={"expected": wanted, "found": dict(source.contract)},
        )
    weights = source.weights_role(weights)
    if source.weights and weights not in source.weights:
        raise SolarError(
            "checkpoint.ema-missing" if weights == "ema" else "weights.role-missing",
            f"{source.path.name} holds no {weights} weights",
            where=where or str(source.path),
            why=f"Expected {weights}, found {', '.join(source.weights)}.",
        )


def load_source(
    source: WeightSource,
    backbone: Backbone,
    module: nn.Module,
    *,
    weights: str,
    endpoint: str = "exact",
    role: str = "student",
    check: bool = False,
) -> CoverageReport | None:
    """Fill `module` from `source`; `endpoint` as in the backbone seam, `role` student or critic.

    `check` compares names and shapes and changes nothing; the module may be on meta, and nothing is
    collective. It looks at the values of packages and files; those of a training checkpoint were
    finite when it was saved, and have digests. Else collective over all ranks for a training
    checkpoint. Raises `checkpoint.*` or `weights.*` (exit 3).
    """
    weights = source.weights_role(weights)
    if source.kind == TRAINING and check:
        return _check_training(source, module, weights=weights, endpoint=endpoint, role=role)
    if source.kind == TRAINING:
        return _load_training(source, module, weights=weights, endpoint=endpoint, role=role)
    path = source.path / MODEL_NAME if source.kind == PACKAGE else source.path
    if role == "critic":
        path = path.with_name(CRITIC_NAME)
        weights = "critic"
    return backbone.load(module, path, weights=weights, endpoint=endpoint, check=check)


def contract_of(config: Mapping[str, Any]) -> dict[str, str]:
    """What a run of this (plain) config trains, as a contract."""
    from solarwm.routes.table import canonical_family

    model, train = (_section(config, name) for name in ("model", "train"))
    family = canonical_family(str(model.get("family", ""))) or model.get("family")
    return plain_contract(
        {
            "family": family,
            "stage": train.get("stage"),
            "causal_mode": train.get("causal_mode"),
            "objective": train.get("objective"),
            "objective_variant": train.get("objective_variant") or STANDARD_VARIANT,
            "camera_translation_transform": model.get("camera_translation_transform"),
        }
    )


def _training(place: Path, role: str) -> WeightSource:
    manifest = read_manifest(place)
    check_sizes(place, manifest)
    facts = _section(read_proven(place, manifest), "facts")
    config = _section(facts, "config")
    held = {"live": f"{role}-model", "ema": f"{role}-ema"}
    return WeightSource(
        path=place,
        kind=TRAINING,
        identity=f"manifest:{file_blake2s(place / MANIFEST_NAME)}",
        step=manifest.step,
        contract=contract_of(config),
        model=_section(config, "model"),
        weights=tuple(name for name, member in held.items() if manifest.member(member)),
        numerics=cast("str | None", facts.get("numerics")),
    )


def _package(path: Path) -> WeightSource:
    package = read_package(path)
    numerics: object = package.metadata.get("numerics")
    model: object = package.metadata.get("model", {})
    return WeightSource(
        path=path,
        kind=PACKAGE,
        identity=f"manifest:{package.manifest_digest}",
        step=package.step,
        contract=package.contract,
        model=cast("dict[str, Any]", model) if isinstance(model, dict) else {},
        weights=package.weights,
        default_weights=package.default_weights,
        numerics=numerics if isinstance(numerics, str) else None,
    )


def _file(path: Path) -> WeightSource:
    if path.suffix not in (".pt", ".pth"):
        return _bare(path)
    from solarwm.backbones.weight_files import STATE_KEYS, read_document

    document = read_document(path)
    if not isinstance(document, dict):
        return _bare(path)
    record = cast("dict[str, Any]", document)
    config, step = _section(record, "config"), record.get("global_step")
    numerics: object = _section(config, "model").get("numerics")
    return WeightSource(
        path=path,
        kind=FILE,
        identity=_inventory(path),
        step=step if isinstance(step, int) else None,
        contract=contract_of(config) if config else {},
        model=_section(config, "model"),
        weights=tuple(name for name, key in STATE_KEYS.items() if key in record),
        numerics=numerics if numerics in ("published", "corrected") else None,
    )


def _bare(path: Path) -> WeightSource:
    return WeightSource(path=path, kind=FILE, identity=_inventory(path))


def _inventory(path: Path) -> str:
    files = [path] if path.is_file() else sorted(p for p in path.iterdir() if p.is_file())
    rows = [[item.name, item.stat().st_size] for item in files if item.suffix in _SUFFIXES]
    return f"files:{blake2s_hex(canonical_json(rows))}"


def _section(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _check_training(
    source: WeightSource, module: nn.Module, *, weights: str, endpoint: str, role: str
) -> None:
    stored = read_manifest(source.path).member(f"{role}-{'model' if weights == 'live' else 'ema'}")
    held = {entry.name: tuple(entry.shape) for entry in stored.tensors} if stored else {}
    wanted = {name: tuple(p.shape) for name, p in module.named_parameters()}
    spared = {"fill": set(wanted) - set(held), "drop": set(held) - set(wanted)}.get(endpoint, set())
    spared = {name for name in spared if name.startswith("delta_embedding.")}
    differing = [
        f"{name}: expected {_shape(wanted.get(name))}, found {_shape(held.get(name))}"
        for name in sorted((set(held) | set(wanted)) - spared)
        if held.get(name) != wanted.get(name)
    ]
    if differing:
        raise SolarError(
            "weights.shape",
            f"{len(differing)} tensors of {source.path.name} are not those of the model",
            where=str(source.path),
            why="; ".join(differing[:3]) + ("; ..." if len(differing) > 3 else "."),
            fixes=["Check that model.profile is the size these weights were made for."],
            context={"wrong": differing},
        )


def _shape(shape: tuple[int, ...] | None) -> str:
    return "nothing" if shape is None else str(list(shape))


def _require_finite(source: WeightSource, values: Mapping[str, Tensor]) -> None:
    for name, value in values.items():
        bad = int((~value.isfinite()).sum()) if value.is_floating_point() else 0
        if bad:
            raise SolarError(
                "weights.nonfinite",
                f"{name} of {source.path.name} holds {bad} numbers that are not finite",
                where=str(source.path),
                why=f"Expected {value.numel()} finite numbers, found {value.numel() - bad}.",
                fixes=[
                    "Load an earlier checkpoint: these weights were saved after a run diverged."
                ],
                context={"tensor": name, "nonfinite": bad},
            )


def _load_training(
    source: WeightSource, module: nn.Module, *, weights: str, endpoint: str, role: str
) -> CoverageReport:
    import torch

    from solarwm.backbones.seam import CoverageReport
    from solarwm.checkpoints.optimizer import named_parameters, named_tensors
    from solarwm.checkpoints.state import RoleState
    from solarwm.checkpoints.store import CheckpointStore

    part = "model" if weights == "live" else "ema"
    stored = read_manifest(source.path).member(f"{role}-{part}")
    held = {entry.name: entry for entry in stored.tensors} if stored else {}
    targets: dict[str, Tensor] = (
        named_tensors(module)
        if weights == "live"
        else {name: p.detach() for name, p in named_parameters(module).items()}
    )
    extra = {name for name in held if name not in targets and name.startswith("delta_embedding.")}
    lacking = [name for name in targets if name not in held and name.startswith("delta_embedding.")]
    dropped = sorted(extra) if endpoint == "drop" else []
    filled = sorted(lacking) if endpoint == "fill" and held else []
    wanted = {name: value for name, value in targets.items() if name not in filled}
    for name in dropped:
        wanted[name] = torch.empty(held[name].shape)
    state = RoleState(model=wanted) if weights == "live" else RoleState(ema=wanted)
    store = CheckpointStore(source.path.parent)
    store.load_into(source.path, {role: state}, cast_dtypes=True)
    _require_finite(source, wanted)
    with torch.no_grad():
        for name in filled:
            targets[name].copy_(targets[name.replace("delta_", "time_", 1)])
    return CoverageReport(
        source=str(source.path),
        naming="native",
        loaded=len(wanted) - len(dropped),
        expected=len(targets),
        missing=(),
        unexpected=(),
        filled=tuple(filled),
        dropped=tuple(dropped),
    )
