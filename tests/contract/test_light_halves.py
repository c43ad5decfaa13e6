"""The light half of every backbone: plain values and pydantic models, no heavy import, every key told."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from pydantic import BaseModel

from solarwm.config import binding
from solarwm.config.descriptions import describe
from solarwm.config.route import load
from solarwm.config.sections import RunBase
from solarwm.routes import table
from solarwm.routes.spec import BackboneSpec

ROUTES = {route.key: route for route in table.ROUTES}
MODELS = sorted(
    {route.config_model for route in table.ROUTES}
    | {table.preencode_route(family).config_model for family in table.ROOMS}
)


@pytest.mark.parametrize("room", table.ROOMS.values())
def test_a_light_half_imports_neither_torch_nor_numpy(room: str) -> None:
    program = (
        f"import sys, json, importlib\n"
        f"importlib.import_module({room!r} + '.spec')\n"
        f"print(json.dumps([name in sys.modules for name in ('torch', 'numpy', 'pydantic')]))\n"
        f"importlib.import_module({room!r} + '.config')\n"
        f"print(json.dumps([name in sys.modules for name in ('torch', 'numpy')]))\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    spec_only, with_config = (json.loads(line) for line in answer.stdout.splitlines())
    assert spec_only == [False, False, False]
    assert with_config == [False, False]


@pytest.mark.parametrize("key", ROUTES)
def test_a_route_names_a_spec_and_a_config_model_of_its_family(key: str) -> None:
    route = ROUTES[key]
    spec, model = load(route.backbone_spec), load(route.config_model)
    assert isinstance(spec, BackboneSpec)
    assert spec.family == route.family
    assert issubclass(model, RunBase)
    assert route.family in spec.aliases
    train = model.model_fields["train"].annotation
    assert train is not None
    assert train.model_fields["stage"].default == route.stage
    assert train.model_fields["objective"].default == route.objective


@pytest.mark.parametrize("family", table.ROOMS)
def test_every_profile_divides_into_heads_groups_of_four_and_whole_patches(family: str) -> None:
    spec = load(f"{table.ROOMS[family]}.spec:SPEC")
    assert {"released", "tiny"} <= set(spec.profiles)
    for name, profile in spec.profiles.items():
        dims, geometry = profile.dims, profile.geometry
        assert profile.name == name
        assert (dims.attention_dim or dims.dim) % dims.num_heads == 0
        assert dims.head_dim % 4 == 0
        if name != "released":
            assert dims.num_heads % 4 == 0
        assert geometry.size_multiple % (geometry.spatial_stride * dims.patch[1]) == 0
        assert profile.default_height % geometry.size_multiple == 0
        assert profile.default_width % geometry.size_multiple == 0
        latents = geometry.latents(profile.default_frames)
        assert latents is not None
        assert geometry.frames(latents) == profile.default_frames


@pytest.mark.parametrize("family", table.ROOMS)
def test_small_profiles_keep_the_released_channels_and_strides(family: str) -> None:
    profiles = load(f"{table.ROOMS[family]}.spec:SPEC").profiles
    assert {profile.geometry for profile in profiles.values()} == {profiles["released"].geometry}


def _sections(model: type[BaseModel]) -> set[type[BaseModel]]:
    found = {model}
    for info in model.model_fields.values():
        inner, _ = binding.nested(info.annotation)
        if inner is not None:
            found |= _sections(inner)
    return found


@pytest.mark.parametrize("reference", MODELS)
def test_every_field_is_documented(reference: str) -> None:
    sections = _sections(load(reference))
    assert len(sections) > 5
    for section in sections:
        assert section.__doc__
        told = describe(section)
        assert [name for name in section.model_fields if not told.get(name, "").strip()] == []


@pytest.mark.parametrize("reference", MODELS)
def test_every_model_builds_and_forbids_unknown_keys(reference: str) -> None:
    model = load(reference)
    model.model_rebuild()
    schema = model.model_json_schema(by_alias=True)
    assert schema["additionalProperties"] is False
    parts = [part for part in schema["$defs"].values() if "properties" in part]
    assert parts
    assert all(part.get("additionalProperties") is False for part in parts)
