"""What can be wrong before anything runs: command line, config, routes, launch, machine."""

from __future__ import annotations

from solarwm.errors.entry import Entry

DESK: dict[str, Entry] = {
    "assets.missing": Entry(
        3,
        "A file the config names is missing",
        "Weights, tokenizer, VAE or index files that this action reads are not where the config says. Nothing was "
        "started. Paths of assets may be absolute or relative to model.base_path; index keys are relative to "
        "data.index_root, or to data.transport.root when no index_root is given.",
    ),
    "bug.unexpected": Entry(
        70,
        "A bug in solarwm",
        "Something happened that the program did not foresee. The full traceback is kept in the run directory "
        "or printed with --verbose; please report it.",
    ),
    "cli.action-mismatch": Entry(
        2,
        "The config is for another command",
        "`action:` in the config says which command it is written for (train, infer or preencode).",
    ),
    "cli.file-exists": Entry(
        2,
        "A file would be overwritten",
        "Nothing is overwritten without being told so. Choose another directory or remove the file first.",
    ),
    "cli.not-available": Entry(
        2,
        "This route cannot do that",
        "The command is known but the chosen route has no implementation of it in this release.",
    ),
    "cli.usage": Entry(
        2,
        "The command line is wrong",
        "An option or argument is missing, unknown or malformed. `solarwm COMMAND --help` lists them.",
    ),
    "config.alias-conflict": Entry(
        2,
        "One setting is given under two names",
        "Published configs spell some settings differently per family (learning_rate and lr). Both spellings are "
        "accepted, but not both at once: keep one.",
    ),
    "config.bad-example": Entry(
        2,
        "No example config has that name",
        "`solarwm config list` shows every example that ships with the package.",
    ),
    "config.batch": Entry(
        2,
        "The batch equation does not hold",
        "global_batch_size must equal (world_size / sequence_parallel_size) x micro_batch_size x grad_accum. "
        "Checked for training only.",
    ),
    "config.binding-value": Entry(
        2,
        "A value contradicts the format or the model",
        "Format constants have one legal value in every profile; sizes that belong to the architecture have one legal "
        "value for the chosen profile. Both may be left out: they are filled in.",
    ),
    "config.conflict": Entry(
        2,
        "Two settings contradict each other",
        "Each value is legal alone, but not beside the other one that the error names.",
    ),
    "config.duplicate-key": Entry(
        2,
        "A key is written twice in one mapping",
        "YAML and JSON readers keep one of the two silently; here it is an error, so that no setting is lost.",
    ),
    "config.env-unset": Entry(
        2,
        "An environment variable in the config is not set",
        "${NAME} in a string is replaced by the environment variable NAME before overrides are applied. The result "
        "stays a string. Values of --set are not expanded: let the shell do that.",
    ),
    "config.file": Entry(
        2,
        "The config file cannot be read",
        "The file is missing, is a directory, is empty, is not UTF-8 text, or is larger than a config can be.",
    ),
    "config.format": Entry(
        2,
        "A fixed format value is different",
        "Schema names, artifact versions and similar strings name a file format and have exactly one legal value.",
    ),
    "config.geometry": Entry(
        2,
        "A value contradicts the model's geometry",
        "Sizes that follow from the backbone, its profile and the clip geometry may be left out: they are filled in. "
        "When they are written they must be equal to what follows.",
    ),
    "config.misplaced-key": Entry(
        2,
        "A key stands in the wrong section",
        "The key exists, but elsewhere in the config. Move it to the place that is named.",
    ),
    "config.missing-key": Entry(
        2,
        "A required key is missing",
        "The chosen route needs this key and has no default for it.",
    ),
    "config.path": Entry(
        2,
        "A path has the wrong form",
        "Some paths must be absolute (data roots, checkpoints), index keys must be relative POSIX paths without "
        "`.` or `..` segments.",
    ),
    "config.placeholder": Entry(
        2,
        "A placeholder path is still in use",
        "Published examples carry paths under /path/to/. `config resolve` lists those the action uses; "
        "`config check --strict`, train, infer and preencode refuse them.",
    ),
    "config.secret": Entry(
        2,
        "A secret stands in the config",
        "Configs are copied into run directories and manifests, so keys that name secrets and URLs with credentials "
        "are refused. Give the path of a file (`*_file`) or an environment variable read by the tool itself. "
        "The value is never printed.",
    ),
    "config.set": Entry(
        2,
        "A --set override is malformed",
        "Write --set section.key=VALUE; VALUE is read as YAML with the rules of the file. `null` clears a key. "
        "--set-file section.key=PATH takes the text of a file. Lists can be replaced, not indexed.",
    ),
    "config.stale-digest": Entry(
        2,
        "A resolved config was changed after it was resolved",
        "The envelope written by `config resolve` carries the digest of its config. They no longer agree: resolve "
        "the source again.",
    ),
    "config.syntax": Entry(
        2,
        "The config is not valid YAML or JSON",
        "The line and column are those where the reader gave up; the mistake is there or just before.",
    ),
    "config.too-complex": Entry(
        2,
        "The config is nested or expanded beyond reason",
        "Nesting, aliases and the number of values are bounded, so that a hostile or broken file cannot exhaust "
        "memory.",
    ),
    "config.topology": Entry(
        2,
        "The process layout is impossible",
        "World size, sequence parallel size, attention heads and latent frames must fit each other; the legal values "
        "are listed in the error.",
    ),
    "config.type": Entry(
        2,
        "A value has the wrong type",
        "Types are strict: quoted text is not a boolean, a float is not a whole number, a boolean is not a number.",
    ),
    "config.unknown-key": Entry(
        2,
        "A key is not part of the schema",
        "Unknown keys are never ignored: a misspelt key would silently train with a default. The nearest legal key "
        "is offered. `metadata` is free-form.",
    ),
    "config.unsupported": Entry(
        2,
        "A setting of the reference that is not supported",
        "Code loading by name from a config and the legacy parallel camera mode are refused on purpose.",
    ),
    "config.value": Entry(
        2,
        "A value is out of its range",
        "The type is right, but the value is not among the legal ones; the error gives them.",
    ),
    "device.unavailable": Entry(
        5,
        "The device cannot be used here",
        "`runtime.device` names a device that this machine, this build of torch or the number of local "
        "ranks does not offer. `solarwm environment probe` lists what is there.",
    ),
    "distributed.agent-gone": Entry(
        6,
        "The launcher is gone",
        "The torchrun agent that started this rank has ended; the rank leaves, since nobody would restart"
        " or stop it.",
    ),
    "distributed.collective-failed": Entry(
        6,
        "Another rank left during a collective",
        "The process group broke while ranks were talking. The rank that failed first is named in run-"
        "result.json and its own record in ranks/ has the reason.",
    ),
    "distributed.group-failed": Entry(
        6,
        "The ranks did not find each other",
        "The process group could not be formed within the time allowed: a node or a process is missing, "
        "or the rendezvous address is wrong.",
    ),
    "distributed.order-differs": Entry(
        6,
        "Ranks are about to make different collectives",
        "With `distributed.check_collectives` every collective is compared with the other ranks before "
        "it is made. Kind, label, shape, dtype or order differed; without the check the run would have "
        "hung, or mixed up numbers.",
    ),
    "distributed.peer-failed": Entry(
        6,
        "Another rank failed",
        "This rank was healthy and stopped because another one was not. run-result.json carries the code "
        "of the first failing rank.",
    ),
    "distributed.peers-differ": Entry(
        6,
        "Ranks that share a sample hold different ones",
        "Ranks of a sequence-parallel group compute parts of one sample. Its identity, latents, prompt, "
        "camera, noise and times are compared every `distributed.check_peers_every` steps; the field "
        "that differed is named.",
    ),
    "distributed.replicas-differ": Entry(
        5,
        "The ranks hold different weights",
        "Before the first step every rank must hold equal weights. Different library versions, devices or"
        " a damaged local file can make them differ.",
    ),
    "launcher.incomplete": Entry(
        5,
        "Launcher variables are missing",
        "RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE come together, from torchrun. With some of "
        "them missing nothing is assumed.",
    ),
    "launcher.malformed": Entry(
        5,
        "The launcher variables contradict each other",
        "RANK must be below WORLD_SIZE, LOCAL_RANK below LOCAL_WORLD_SIZE, and WORLD_SIZE a multiple of "
        "LOCAL_WORLD_SIZE.",
    ),
    "launcher.mismatch": Entry(
        5,
        "The launch has other processes than the config",
        "`distributed.world_size` says how many processes a run has. Start that many with torchrun, or "
        "change the config.",
    ),
    "objective.no-shift": Entry(
        2,
        "The objective has no timestep shift",
        "The noise levels of this objective are drawn on a shifted grid; set "
        "`model.timestep_shift`.",
    ),
    "resource.memory": Entry(
        5,
        "Memory ran out",
        "The device or the machine had too little memory for this step. Smaller microbatches with more "
        "accumulation keep the global batch equal.",
    ),
    "route.unsupported": Entry(
        2,
        "The combination is not a route that runs",
        "A route is family:stage:causal_mode:objective[:variant]. `solarwm config routes` lists those that run and "
        "`solarwm config routes --explain KEY` says why another one does not.",
    ),
}
