"""Mutations of configs that know whether they are legal, and which code and key to expect if not."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

HEADS = {"wan22_ti2v_5b": 24, "wan22_i2v_a14b": 40, "quickstart": 4}
MARKER = "Zq7SECRETzq7"
"""Stands where a secret would; no output may hold it."""


@dataclass
class Case:
    """One mutated config and what must come of it."""

    source: str
    values: dict[str, Any]
    kind: str = ""
    text: str | None = None
    data: bytes | None = None
    suffix: str = ".yaml"
    sets: list[str] = field(default_factory=list)
    environ: dict[str, str] = field(default_factory=dict)
    legal: bool | None = True
    """None: the mutator cannot know; only a clean ending is asked for."""
    same: bool = False
    """The resolved digest must be that of the source."""
    codes: tuple[str, ...] = ()
    key: str | None = None

    @property
    def family(self) -> str:
        return self.source.partition("/")[0]

    @property
    def training(self) -> bool:
        return self.values["action"] == "train"

    def bad(self, *codes: str, key: str | None = None) -> None:
        self.legal, self.codes, self.key = False, codes, key


Mutation = Callable[[Case, random.Random], None]


def dump(values: Any, **options: Any) -> str:
    return yaml.dump(values, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), **options)


def word(rng: random.Random) -> str:
    return "zz_" + "".join(rng.choice("bcdfghjklmnpqrstvwxz") for _ in range(9))


def at(values: dict[str, Any], dotted: str) -> Any:
    for part in dotted.split("."):
        values = values[part]
    return values


def put(case: Case, rng: random.Random, dotted: str, value: Any) -> None:
    """Write a value into the file or, as often, as an override."""
    if rng.random() < 0.5 and value is not None and value != "":
        case.sets.append(f"{dotted}={json.dumps(value)}")
        return
    *parents, leaf = dotted.split(".")
    node = case.values
    for part in parents:
        node = node.setdefault(part, {})
    node[leaf] = value


# ---- legal changes


def reorder(case: Case, rng: random.Random) -> None:
    keys = list(case.values)
    rng.shuffle(keys)
    case.text = dump({key: case.values[key] for key in keys}, sort_keys=False)
    case.same = True


def comment(case: Case, rng: random.Random) -> None:
    lines = dump(case.values, sort_keys=False).splitlines()
    for _ in range(5):
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(["", "# a remark", "   # another"]))
    case.text, case.same = rng.choice(["\n", "\r\n"]).join(lines) + "\n", True


def as_json(case: Case, rng: random.Random) -> None:
    case.text = json.dumps(case.values, indent=rng.choice([None, 2]))
    case.suffix, case.same = ".json", True


def exponent(case: Case, rng: random.Random) -> None:
    if "lr" not in case.values["train"].get("optimizer", {}):
        return reorder(case, rng)
    base = dump(case.values, sort_keys=False)
    number = case.values["train"]["optimizer"]["lr"]
    plain = f"lr: {dump(number).split()[0]}"
    mantissa, _, power = f"{number:e}".partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".")
    form = rng.choice([f"{mantissa}e{int(power)}", f"{mantissa}E{int(power)}", f"{number:.10f}"])
    case.text, case.same = base.replace(plain, f"lr: {form}", 1), True


def alias(case: Case, rng: random.Random) -> None:
    train = case.values["train"]
    if "grad_accum" in train:
        train["gradient_accumulation_steps"] = train.pop("grad_accum")
    elif "gradient_accumulation_steps" in train:
        train["grad_accum"] = train.pop("gradient_accumulation_steps")
    optimizer = train.get("optimizer", {})
    for one, two in (("lr", "learning_rate"), ("eps", "epsilon"), ("grad_clip", "gradient_clip")):
        if one in optimizer:
            optimizer[two] = optimizer.pop(one)
        elif two in optimizer:
            optimizer[one] = optimizer.pop(two)
    case.same = True


def family_spelling(case: Case, rng: random.Random) -> None:
    spellings = {
        "wan22_ti2v_5b": "wan2.2-ti2v-5b",
        "wan22_i2v_a14b": "wan2.2-i2v-a14b",
        "ltx25_video": "ltx-2.5",
        "minimax_h3": "minimax-h3",
    }
    name = spellings[case.values["model"]["family"]]
    case.values["model"]["family"] = "".join(rng.choice([c, c.upper()]) for c in name)
    case.same = True


def metadata(case: Case, rng: random.Random) -> None:
    case.values["metadata"] = {word(rng): [1, {word(rng): None}], word(rng): {"a": 1.5}}


def output_dir(case: Case, rng: random.Random) -> None:
    put(case, rng, "runtime.output_dir", rng.choice(["/a/b", "rel/dir", "~/x", "/x=y/ z", "/ä/b"]))


def expanded(case: Case, rng: random.Random) -> None:
    case.values["runtime"]["output_dir"] = "/base/${FUZZ_NAME}/run"
    case.environ["FUZZ_NAME"] = word(rng)


def anchor(case: Case, rng: random.Random) -> None:
    case.text = "metadata: {note: &note 42, again: *note}\n" + dump(case.values)


def zero(case: Case, rng: random.Random) -> None:
    put(case, rng, "validation.sample_count" if case.training else "metadata.zero", 0)


# ---- illegal changes


def unknown_key(case: Case, rng: random.Random) -> None:
    name = word(rng)
    section = rng.choice(
        ["", "model.", "data.", "data.transport.", "distributed.", "train.", "runtime."]
    )
    put(case, rng, f"{section}{name}", rng.choice([1, "x", True, {"a": 1}]))
    case.bad("config.unknown-key", key=f"{section}{name}")


def typo(case: Case, rng: random.Random) -> None:
    path = rng.choice(
        ["runtime.output_dir", "data.transport", "model.family", "distributed.world_size"]
    )
    section, _, leaf = path.rpartition(".")
    spot = rng.randrange(1, len(leaf) - 1)
    wrong = leaf[:spot] + "q" + leaf[spot + 1 :]
    node = at(case.values, section)
    node[wrong] = node.pop(leaf)
    codes = ["config.unknown-key"]
    if path == "model.family":
        return case.bad("config.missing-key", key="model.family")
    case.bad(*codes, key=f"{section}.{wrong}")


def wrong_type(case: Case, rng: random.Random) -> None:
    path, values = rng.choice(
        [
            ("data.height", ["x", "480", 480.5, True, [480], {"a": 1}]),
            ("data.num_workers", ["eight", 1.5, False, []]),
            ("distributed.world_size", ["x", 2.5, True, {}]),
            ("runtime.require_clean_source", ["false", "true", "yes", 0, 1, 1.0]),
            ("data.transport.root", [5, True, ["/a"], {"a": 1}]),
            ("runtime", [5, "x", ["a"], True]),
            ("data", [5, "x", ["a"]]),
            ("data.transport", [5, "gcs", ["a"]]),
            ("distributed.timeout_s", ["soon", True, [1.0]]),
            ("runtime.log_every", ["1", 1.5]),
        ]
    )
    put(case, rng, path, rng.choice(values))
    case.bad("config.type", key=path)


def out_of_range(case: Case, rng: random.Random) -> None:
    path, value = rng.choice(
        [
            ("distributed.world_size", 0),
            ("distributed.world_size", -8),
            ("distributed.timeout_s", 0.0),
            ("runtime.log_every", 0),
            ("data.seed", -1),
            ("runtime.device", "tpu"),
            ("model.numerics", "fast"),
            ("data.order", "random"),
            ("runtime.trackers", {"wandb": "maybe"}),
        ]
    )
    put(case, rng, path, value)
    key = "runtime.trackers.wandb" if path == "runtime.trackers" else path
    case.bad("config.value", key=key)


def duplicate(case: Case, rng: random.Random) -> None:
    text = dump(case.values, sort_keys=False)
    key = rng.choice(["name", "action"])
    case.text = f"{key}: {case.values[key]}\n{text}"
    case.bad("config.duplicate-key", key=key)


def removed(case: Case, rng: random.Random) -> None:
    path = rng.choice(["schema", "action", "name", "model", "data", "runtime", "model.family"])
    path = rng.choice([path, "data.transport", "runtime.output_dir", "data.transport.root"])
    section, _, leaf = path.rpartition(".")
    del (at(case.values, section) if section else case.values)[leaf]
    case.bad("config.missing-key", key=path)


def secret(case: Case, rng: random.Random) -> None:
    name = rng.choice(
        ["hf_token", "token", "AWS_SECRET_ACCESS_KEY", "wandbApiKey", "authorization"]
    )
    where = rng.choice(["runtime", "metadata", "data.transport", "train"])
    put(case, rng, f"{where}.{name}", MARKER)
    case.bad("config.secret", key=f"{where}.{name}")


def secret_url(case: Case, rng: random.Random) -> None:
    url = rng.choice([f"https://u:{MARKER}@h/x", f"s3://h/x?X-Amz-Signature={MARKER}"])
    put(case, rng, "metadata.address", url)
    case.bad("config.secret", key="metadata.address")


def strange_value(case: Case, rng: random.Random) -> None:
    value, code = rng.choice(
        [
            ("2026-01-02", "config.type"),
            ("!!set {a, b}", "config.type"),
            ("!!binary aGk=", "config.type"),
            ("!!python/name:os.system x", "config.type"),
            (".nan", "config.value"),
            ("-.inf", "config.value"),
            ("1e999", "config.value"),
            ("99999999999999999999999", "config.value"),
            ('"\\0"', "config.value"),
        ]
    )
    name = word(rng)
    case.text = f"metadata: {{{name}: {value}}}\n" + dump(case.values)
    case.bad(code, key=f"metadata.{name}")


def bomb(case: Case, rng: random.Random) -> None:
    lines = ["metadata:", "  a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    for level in range(1, rng.randrange(5, 9)):
        inner = ", ".join([f"*a{level - 1}"] * 9)
        lines.append(f"  a{level}: &a{level} [{inner}]")
    case.text = "\n".join(lines) + "\n" + dump(case.values)
    case.bad("config.too-complex")


def deep(case: Case, rng: random.Random) -> None:
    depth = rng.choice([60, 400, 5000, 60000])
    case.text = "metadata: " + "[" * depth + "]" * depth + "\n"
    case.bad("config.too-complex")


def cycle(case: Case, rng: random.Random) -> None:
    case.text = "metadata: &m {a: [*m]}\n" + dump(case.values)
    case.bad("config.too-complex")


def huge(case: Case, rng: random.Random) -> None:
    case.text = dump(case.values) + "# " + "x" * 600_000
    case.bad("config.file")


def not_text(case: Case, rng: random.Random) -> None:
    text = dump(case.values).encode()
    spot = rng.randrange(len(text))
    bad = rng.choice([b"\x00", b"\xff", b"\xc3\x28"])
    case.data = rng.choice(
        [text[:spot] + bad + text[spot:], text.decode().encode("utf-16"), b"", b" \n"]
    )
    case.bad("config.file")


def unset(case: Case, rng: random.Random) -> None:
    path = rng.choice(["runtime.output_dir", "data.transport.root"])
    *_, leaf = path.split(".")
    at(case.values, path.rpartition(".")[0])[leaf] = "/a/${FUZZ_UNSET_NAME}"
    case.bad("config.env-unset", key=path)


def no_group(case: Case, rng: random.Random) -> None:
    size = rng.choice([3, 5, 7])
    case.sets += ["distributed.world_size=8", f"distributed.sequence_parallel_size={size}"]
    case.bad("config.topology", key="distributed.sequence_parallel_size")


def no_heads(case: Case, rng: random.Random) -> None:
    heads = HEADS.get(case.family)
    if heads is None:
        return no_group(case, rng)
    size = rng.choice([p for p in (5, 7, 9, 16) if heads % p])
    case.sets += [
        f"distributed.world_size={size * 2}",
        f"distributed.sequence_parallel_size={size}",
    ]
    case.bad("config.topology", key="distributed.sequence_parallel_size")


def batch(case: Case, rng: random.Random) -> None:
    if not case.training:
        return no_group(case, rng)
    size = case.values["train"]["global_batch_size"]
    put(case, rng, "train.global_batch_size", size + rng.randrange(1, size + 1))
    case.bad("config.batch", key="train.global_batch_size")


def both_names(case: Case, rng: random.Random) -> None:
    optimizer = case.values["train"].setdefault("optimizer", {})
    optimizer |= {"lr": 1.0e-4, "learning_rate": 1.0e-4}
    case.bad("config.alias-conflict", key="train.optimizer.learning_rate")


def misplaced(case: Case, rng: random.Random) -> None:
    name, home = rng.choice(
        [("world_size", "data"), ("output_dir", "train"), ("family", "runtime")]
    )
    put(case, rng, f"{home}.{name}", 1)
    case.bad("config.misplaced-key", key=f"{home}.{name}")


def geometry(case: Case, rng: random.Random) -> None:
    put(case, rng, "data.pixel_frames", rng.choice([2, 80, 82, 154, 100]))
    case.bad("config.geometry", "config.binding-value", key="data.pixel_frames")


def bad_set(case: Case, rng: random.Random) -> None:
    case.sets.append(
        rng.choice(
            [
                f"{MARKER}",
                "=1",
                "a.b=",
                f"data.seed=[{MARKER}",
                "name.x=1",
                f'name="{MARKER}',
                "...=3",
            ]
        )
    )
    case.bad("config.set", "config.syntax")


def relative(case: Case, rng: random.Random) -> None:
    path = rng.choice(["data.transport.root", "data.index_root"])
    put(case, rng, path, rng.choice(["data", "./data", "../up"]))
    case.bad("config.path", key=path)


def code_by_name(case: Case, rng: random.Random) -> None:
    section = rng.choice(["model", "runtime", "train"])
    put(case, rng, f"{section}._target_", "os.system")
    case.bad("config.unsupported", key=f"{section}._target_")


def no_route(case: Case, rng: random.Random) -> None:
    put(case, rng, "train.stage", rng.choice(["stage3", "stage1x", "bidirectional"]))
    case.bad("route.unsupported", key="train.stage")


def no_family(case: Case, rng: random.Random) -> None:
    put(case, rng, "model.family", rng.choice(["wan22", "wan22_ti2v_5", "x"]))
    case.bad("config.value", key="model.family")


# ---- the mutator cannot know


def torn(case: Case, rng: random.Random) -> None:
    text = dump(case.values)
    spots = sorted(rng.randrange(len(text)) for _ in range(2))
    case.text, case.legal = text[: spots[0]] + text[spots[1] :], None


def noise(case: Case, rng: random.Random) -> None:
    text = list(dump(case.values))
    for _ in range(rng.randrange(1, 6)):
        text[rng.randrange(len(text))] = rng.choice("{}[]:,&*!|>'\"%@`#-?\t \nabc019")
    case.text, case.legal = "".join(text), None


MUTATIONS: tuple[Mutation, ...] = (
    reorder, comment, as_json, exponent, alias, family_spelling, metadata, output_dir, expanded,
    anchor, zero, unknown_key, typo, wrong_type, out_of_range, duplicate, removed, secret,
    secret_url, strange_value, bomb, deep, cycle, huge, not_text, unset, no_group, no_heads, batch,
    both_names, misplaced, geometry, bad_set, relative, code_by_name, no_route, no_family,
    torn, noise,
)  # fmt: skip
