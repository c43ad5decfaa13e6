"""What to do about a kind of fault, for errors whose place knows nothing better."""

from __future__ import annotations

_BY_KIND: dict[str, str] = {
    "camera": "solarwm data validate INDEX lists every bad track; mend the named sample or take its row out",
    "checkpoint": "solarwm checkpoint verify PATH names what is wrong; --resume latest takes the newest sound one",
    "config": "solarwm config show NAME prints a published config with every key in its place",
    "data": "solarwm data validate INDEX lists every bad row",
    "disk": "check the disk, its mount and its permissions, then start again with --resume latest",
    "distributed": "read ranks/rank-NNNNN.failure.json of the rank that failed first",
    "index": "mend the row in the source of the index, or take it out; solarwm data inspect INDEX checks it again",
    "inference": "solarwm checkpoint verify PATH; fewer steps or a lower guidance when the weights are sound",
    "run": "solarwm run list DIRECTORY shows the runs that are there",
    "shard": "copy the shard again from its source, then solarwm data validate INDEX",
    "train": "solarwm run status RUN_DIRECTORY shows the last steps",
    "video": "encode the video again, or take its row out; solarwm data validate INDEX lists all of them",
    "weights": "solarwm checkpoint inspect PATH shows what the file holds; download it again if it is cut off",
}
_BY_CODE: dict[str, str] = {
    "bug.unexpected": "report it with the saved report file",
    "checkpoint.mismatch": "resume with the config the checkpoint was made with (its resolved-config.json)",
    "checkpoint.replicas-differ": "use one version of torch and of solarwm on all nodes",
    "checkpoint.unsafe": "copy the checkpoint itself to where the link stands",
    "cli.not-available": "solarwm config routes --explain shows what runs",
    "config.file": "solarwm config copy NAME DIRECTORY writes a good one",
    "config.missing-key": "solarwm config schema lists the keys",
    "config.secret": "take it out of the config: the environment of the process may hold it",
    "config.syntax": "mend the text at this place; solarwm config show NAME prints a good one",
    "config.too-complex": "write the values out flat; a config holds a few hundred",
    "config.value": "docs/reference/config.md lists what every key takes",
    "config.type": "docs/reference/config.md lists what every key takes",
    "distributed.agent-gone": "start again with --resume latest",
    "index.no-digest": "take NaN and infinity out of the row",
    "index.unreadable": "check that the path is a readable file: data.index_root, data.train_index",
    "run.interrupted": "--resume latest goes on from the last checkpoint",
    "run.terminated": "--resume latest goes on from the last checkpoint",
    "shard.bad-path": "write the shard as a relative path below data.transport.root",
    "shard.compressed": "unpack it: shards are plain tar, so that members can be read by offset",
    "shard.duplicate-member": "write the shard again with every member once",
    "shard.interleaved": "write the shard again with the members of a sample side by side",
    "train.non-finite": "look at the named samples; lower train.optimizer.lr; resume from the last checkpoint",
    "weights.no-match": "point the config at weights of this family and size",
}


def remedy(code: str) -> str:
    """One thing to try for a fault of kind `code`; empty where there is nothing to say."""
    return _BY_CODE.get(code) or _BY_KIND.get(code.partition(".")[0], "")
