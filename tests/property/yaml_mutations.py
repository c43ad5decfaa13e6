"""Mutations of single words: plain words that readers of YAML take differently, and credentials in them."""

from __future__ import annotations

import random

from tests.property.config_mutations import MARKER, Case, Mutation, dump


def odd_key(case: Case, rng: random.Random) -> None:
    key = rng.choice(["1", "true", "null", "2.5", "[a, b]", "010"])
    case.text = f"metadata: {{{key}: x}}\n" + dump(case.values)
    case.bad("config.syntax", key="metadata")


def two_readings(case: Case, rng: random.Random) -> None:
    """Plain numbers that YAML 1.1 and 1.2 take differently, in the file or as an override."""
    key = rng.choice(["data.seed", "distributed.world_size", "name"])
    octal, grouped = f"0{rng.randrange(8, 999):o}", f"1_{rng.randrange(999):03d}"
    _write(case, rng, key, rng.choice([octal, grouped, "1:30", "0b101"]))
    case.bad("config.value", key=key)


def switch_words(case: Case, rng: random.Random) -> None:
    """Words that are switches in YAML 1.1 are text here: on a switch they are refused."""
    word = rng.choice(["yes", "no", "on", "off", "Yes", "OFF"])
    if rng.random() < 0.5:
        _write(case, rng, "runtime.require_clean_source", word)
        case.bad("config.type", key="runtime.require_clean_source")
    else:
        case.sets += [f"name={word}", "runtime.trackers.tensorboard=off"]


def token(case: Case, rng: random.Random) -> None:
    """A credential that is one by its shape, under a key that says nothing of it."""
    text = rng.choice(
        [
            f"ghp_{MARKER}abcdefghij0123456789",
            f"hf_{MARKER}abcdefghijklmnop",
            f"sk-proj-{MARKER}abcdefgh",
            f"/data/x?api_key={MARKER}",
            f"gs://bucket/x?access_token={MARKER}",
            f"see {MARKER} at access_token={MARKER}",
            f"https://user:{MARKER}@host/x",
        ]
    )
    key = rng.choice(["name", "runtime.output_dir", "data.transport.root", "runtime.image"])
    _write(case, rng, key, text if rng.random() < 0.5 else f"'{text}'")
    case.bad("config.secret", key=key)


def _write(case: Case, rng: random.Random, key: str, text: str) -> None:
    """Put the very text `text` at `key`, in the file or as an override."""
    if rng.random() < 0.5:
        case.sets.append(f"{key}={text}")
        return
    *parents, leaf = key.split(".")
    node = case.values
    for part in parents:
        node = node[part]
    node[leaf] = "VERBATIM"
    case.text = dump(case.values, width=1000).replace("VERBATIM", text)


YAML_MUTATIONS: tuple[Mutation, ...] = (odd_key, two_readings, switch_words, token)
