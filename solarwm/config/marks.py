"""How binding a config field is: marks carried in `Annotated[...]`, and the facts they are worked
out from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from solarwm.routes.spec import BackboneSpec, LatentGeometry, ModelDims, Profile


class _Unknown:
    """The type of `UNKNOWN`."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()
"""No expectation: the facts do not settle the value (an illegal frame count, a mark without a
value)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a mark may look at: the backbone, the chosen profile, and the config as written
    (canonical spelling)."""

    spec: BackboneSpec
    profile: Profile
    config: Mapping[str, Any]

    def get(self, dotted: str, default: Any = None) -> Any:
        """The written value at a dotted path, or `default` where a part of it is missing."""
        node: Any = self.config
        for part in dotted.split("."):
            try:
                node = node[part]
            except (KeyError, TypeError, IndexError):
                return default
        return node

    def integer(self, dotted: str, default: int) -> int:
        """The written integer at a dotted path; `default` where it is missing or no integer."""
        value = self.get(dotted)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    @property
    def released(self) -> bool:
        """True for the published size."""
        return self.profile.name == "released"

    @property
    def action(self) -> str:
        """`train`, `infer` or `preencode`."""
        return str(self.get("action", "train"))

    @property
    def stage(self) -> str:
        """`stage0p5`, `stage1` or `stage2`; empty for preencode."""
        return str(self.get("train.stage") or self.get("model.stage") or "")

    @property
    def geometry(self) -> LatentGeometry:
        """The latent geometry of the profile."""
        return self.profile.geometry

    @property
    def dims(self) -> ModelDims:
        """The transformer size of the profile."""
        return self.profile.dims

    @property
    def pixel_frames(self) -> int:
        """Pixel frames of a clip: as written, else the default of the profile."""
        return self.integer("data.pixel_frames", self.profile.default_frames)

    @property
    def height(self) -> int:
        """Pixel height: as written, else the default of the profile."""
        return self.integer("data.height", self.profile.default_height)

    @property
    def width(self) -> int:
        """Pixel width: as written, else the default of the profile."""
        return self.integer("data.width", self.profile.default_width)

    @property
    def latents(self) -> int | None:
        """Latent frames of a clip, or None where the VAE rule forbids the frame count."""
        return self.geometry.latents(self.pixel_frames)

    @property
    def latent_height(self) -> int:
        """Rows of the latent grid."""
        return self.height // self.geometry.spatial_stride

    @property
    def latent_width(self) -> int:
        """Columns of the latent grid."""
        return self.width // self.geometry.spatial_stride

    @property
    def tokens_per_latent(self) -> int:
        """Transformer tokens of one latent frame."""
        _, patch_height, patch_width = self.dims.patch
        return (self.latent_height // patch_height) * (self.latent_width // patch_width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A published or derived value of a field: fixed (`value`), or worked out from the facts
    (`by`)."""

    value: Any = UNKNOWN
    by: Callable[[Facts], Any] | None = None
    reason: str = ""
    """Why the value is what it is; shown with the fault or note."""

    def expected(self, facts: Facts) -> Any:
        """The value under these facts, or `UNKNOWN`."""
        return self.by(facts) if self.by is not None else self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Format(Mark):
    """A format constant (schema string, name, key set): binds in every profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture(Mark):
    """A fact of the model or of its geometry: binds for `released`.

    In the other profiles the value is filled in and must equal it when written, unless it is
    `adjustable`: then the profile only gives the default.
    """

    adjustable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(Mark):
    """A choice of the published recipe: free within type and range; a written deviation becomes a
    note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived(Mark):
    """Worked out from other fields when left out; a written value is checked by the rules of the
    family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A path, key or address: where placeholders are looked for and relative paths are judged."""

    absolute: bool = False
    """The path must be absolute (`gs://` and the like count as absolute)."""
    actions: tuple[str, ...] | None = None
    """Actions that use the field; None means all of them."""
    relative_to: str | None = None
    """The sibling field a relative value is taken from."""
    released_only: bool = False
    """The small profiles do not read the field."""
