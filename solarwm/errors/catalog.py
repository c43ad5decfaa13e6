"""Every error code: its exit code, and the text that `solarwm explain CODE` prints."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One kind of fault."""

    exit_code: int
    title: str
    explanation: str


# The first word of a code names the room that found the fault; the exit code follows the nature of the
# fault: 2 command line or config, 3 a named file, 4 partial output, 5 surroundings, 6 another rank,
# 7 non-finite numbers, 70 a bug.
CATALOG: dict[str, Entry] = {
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
    "camera.guard": Entry(
        3,
        "A camera moves beyond the limits",
        "A first-frame-relative camera leaves data.max_rel_translation or data.max_camera_abs "
        "within its first 10 seconds. The track is well formed; training takes a substitute "
        "for such a sample.",
    ),
    "camera.lens": Entry(
        3,
        "The intrinsics of a sample are wrong",
        "The intrinsics member is read only with camera_intrinsics_mode: source. It is NPY or "
        "NPZ of shape [3,3], [N,3,3], [4] or [N,4] (fx, fy, cx, cy), and the lens must not "
        "change within a clip.",
    ),
    "camera.manifest": Entry(
        3,
        "The manifest does not vouch for the camera",
        "The camera block of a sample's manifest must carry the published convention, dtype, "
        "limits and the shape of the stored array.",
    ),
    "camera.missing-array": Entry(
        3,
        "The camera file lacks the array",
        "data.camera_array_key names the one array that is read: c2w, w2c, vipe_c2w, vipe_w2c "
        "or relative_w2c.",
    ),
    "camera.not-finite": Entry(
        3,
        "A camera pose is not finite",
        "A pose holds NaN or infinity; the frame number is given.",
    ),
    "camera.not-rigid": Entry(
        3,
        "A camera pose is not a rigid motion",
        "Poses are 4x4 OpenCV camera-to-world matrices: bottom row 0,0,0,1, orthonormal "
        "rotation, determinant +1. A translation in the last row means the matrix is "
        "transposed.",
    ),
    "camera.shape": Entry(
        3,
        "The camera array has a wrong shape",
        "One [4,4] pose for every frame of the source video is needed.",
    ),
    "camera.status": Entry(
        3,
        "The camera estimate of a sample failed",
        "The camera file carries a vipe_status other than ok.",
    ),
    "camera.unreadable": Entry(
        3,
        "The camera file cannot be read",
        "Cameras are NPZ files of plain numeric arrays; pickled objects are never loaded.",
    ),
    "checkpoint.damaged": Entry(
        3,
        "The checkpoint is damaged",
        "A file of the checkpoint is missing, has another size or other content than when it "
        "was saved. `solarwm checkpoint verify PATH` lists every bad file.",
    ),
    "checkpoint.ema-missing": Entry(
        3,
        "The checkpoint holds no EMA weights",
        "EMA weights were asked for, and the checkpoint was saved without them. Ask for the "
        "live weights, or choose a checkpoint saved after EMA started.",
    ),
    "checkpoint.exists": Entry(
        5,
        "A checkpoint of that step exists already",
        "A save never replaces a checkpoint. The same step was saved before, by this run or "
        "by one that used the directory earlier.",
    ),
    "checkpoint.incomplete": Entry(
        3,
        "The checkpoint is not complete",
        "A checkpoint counts only when its COMPLETE.json says so. A save that was cut short "
        "leaves a directory without one; it is never resumed from.",
    ),
    "checkpoint.mismatch": Entry(
        3,
        "The checkpoint does not fit the model",
        "Names, shapes or roles in the checkpoint differ from what the config builds.",
    ),
    "checkpoint.missing": Entry(
        3,
        "There is no such checkpoint",
        "The path names no checkpoint directory.",
    ),
    "checkpoint.peer-failed": Entry(
        6,
        "Another rank failed while saving or loading",
        "A checkpoint is written and read by all ranks together; one of them failed, so all "
        "of them stopped.",
    ),
    "checkpoint.replicas-differ": Entry(
        70,
        "Ranks hold different values under one name",
        "A tensor that is not sharded must be equal on all ranks. Saving it would keep one "
        "rank's part and lose the others.",
    ),
    "checkpoint.unsafe": Entry(
        3,
        "The checkpoint holds something that is not a tensor",
        "Only tensors and plain records are read. Anything that could run code, and any path "
        "that leaves the checkpoint, is refused.",
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
    "data.empty-reader": Entry(
        3,
        "A reader of the published order gets no sample",
        "In the published order samples are dealt to ranks and loader workers; with too few "
        "shards or rows some get none.",
    ),
    "data.extra-missing": Entry(
        5,
        "A package for reading data is missing",
        "Install the extra: pip install 'solarwm[data]'.",
    ),
    "device.unavailable": Entry(
        5,
        "The device cannot be used here",
        "`runtime.device` names a device that this machine, this build of torch or the number of local "
        "ranks does not offer. `solarwm environment probe` lists what is there.",
    ),
    "disk.denied": Entry(
        5,
        "Permission denied",
        "The operating system does not let this user write there.",
    ),
    "disk.failed": Entry(
        5,
        "The operating system refused a file operation",
        "A file or directory could not be created, written, synced or renamed. Nothing was "
        "published.",
    ),
    "disk.full": Entry(
        5,
        "The disk is full",
        "There is not enough room for what is to be written. Nothing was published, and what "
        "was begun is removed.",
    ),
    "disk.io": Entry(
        5,
        "The disk reported an error",
        "Reading or writing failed in the disk or its driver. Nothing was published.",
    ),
    "disk.read-only": Entry(
        5,
        "The file system is read-only",
        "The directory is on a file system that accepts no writes.",
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
    "distributed.peer-failed": Entry(
        6,
        "Another rank failed",
        "This rank was healthy and stopped because another one was not. run-result.json carries the code "
        "of the first failing rank.",
    ),
    "distributed.replicas-differ": Entry(
        5,
        "The ranks hold different weights",
        "Before the first step every rank must hold equal weights. Different library versions, devices or"
        " a damaged local file can make them differ.",
    ),
    "index.bad-field": Entry(
        3,
        "A field of an index row is wrong",
        "The row, its byte offset and the field are named. Types are strict: a number in "
        "quotes or true for 1 is refused.",
    ),
    "index.bad-json": Entry(
        3,
        "An index row is not a JSON object",
        "An index is JSONL: one JSON object a line, UTF-8, optionally gzip.",
    ),
    "index.bad-path": Entry(
        3,
        "A path in the index is not a relative key",
        "Shards and members are named by relative keys: no leading slash, no .., no empty "
        "segment, no URL.",
    ),
    "index.duplicate-id": Entry(
        3,
        "A sample id stands twice in the index",
        "Every sample_id is unique within a file; use epoch_repeats to use a sample more than "
        "once an epoch.",
    ),
    "index.empty": Entry(
        3,
        "The index is empty",
        "The file has 0 bytes.",
    ),
    "index.missing": Entry(
        3,
        "The index file does not exist",
        "The path is data.index_root joined with data.train_index or data.test_index.",
    ),
    "index.no-digest": Entry(
        3,
        "An index row has no canonical form",
        "NaN, infinity and lone surrogates cannot be written as canonical JSON, so such a row "
        "has no digest.",
    ),
    "index.no-frame-count": Entry(
        3,
        "The index does not tell how long a sample is",
        "num_frames must stand in the row or in its inline manifest, so that starts can be "
        "drawn without opening shards.",
    ),
    "index.no-rows": Entry(
        3,
        "The index has no rows",
        "The file holds blank lines only.",
    ),
    "index.not-gzip": Entry(
        3,
        "The name and the content of the index disagree",
        "Names that end in .gz are gzip, others are plain JSONL.",
    ),
    "index.not-utf8": Entry(
        3,
        "The index is not UTF-8",
        "UTF-8 with or without byte order mark is read; the offending byte and its offset are "
        "given.",
    ),
    "index.overlap": Entry(
        3,
        "Train and test share samples",
        "No sample_id may stand in both indexes.",
    ),
    "index.shard-drift": Entry(
        3,
        "Rows disagree about one shard",
        "All rows of a shard carry the same shard_generation, shard_size, shard_md5_b64 and "
        "shard_digest.",
    ),
    "index.too-few-frames": Entry(
        3,
        "A sample is shorter than the clip",
        "The clip, re-timed to data.fps, needs more source frames than the row has.",
    ),
    "index.truncated": Entry(
        3,
        "The gzip index is cut off or damaged",
        "Decompression failed before the end of the file.",
    ),
    "index.unreadable": Entry(
        3,
        "The index cannot be read",
        "The operating system refused; its reason is given.",
    ),
    "inference.clip-too-short": Entry(
        3,
        "A clip has too few frames",
        "The clip that a case asks for does not reach from its start frame over the frames the model needs.",
    ),
    "inference.incomplete": Entry(
        4,
        "Some clips are missing",
        "At least one clip could not be made, or an artifact is not what its manifest says. The reasons lie in "
        "generation/<pass>/errors/. The same command with --resume fills the missing clips only.",
    ),
    "inference.not-finite": Entry(
        7,
        "A generated clip is not finite",
        "The solver diverged: NaN or infinity in the latents of a generated clip.",
    ),
    "inference.numerics-differ": Entry(
        2,
        "The config contradicts the numerics of the weights",
        "A checkpoint records whether it was trained with published or corrected numerics, and generation must use "
        "the same. `model.numerics: auto` takes what is recorded.",
    ),
    "inference.output-exists": Entry(
        2,
        "The output directory already holds a generation",
        "Nothing is overwritten: --resume fills the missing clips, another runtime.output_dir starts afresh.",
    ),
    "inference.plan-differs": Entry(
        2,
        "The generation to resume was started for something else",
        "generation/plan.json records the clips, passes, weights and seeds; a resume must ask for the same.",
    ),
    "inference.too-few-cases": Entry(
        3,
        "The test index has too few usable clips",
        "validation.sample_count clips are drawn from the test index; those refused by the camera guards are "
        "passed over, and not enough remained.",
    ),
    "inference.unknown-solver": Entry(
        2,
        "There is no such solver",
        "A validation or inference pass names its solver; the route says which it can sample with.",
    ),
    "inference.weights-mismatch": Entry(
        3,
        "The weights were trained for something else",
        "Family, profile and camera settings of the config must be those the checkpoint was trained with.",
    ),
    "inference.weights-missing": Entry(
        3,
        "The weights to generate with are not there",
        "checkpoint.path names a training run, one of its checkpoints, a released directory or a weight file, "
        "and the asked weights (live or ema) must be in it.",
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
    "run.directory-busy": Entry(
        2,
        "The directory is in use by another run",
        "One process writes to a run directory at a time. The lock ends with the process that "
        "holds it, so there is never anything to clean by hand.",
    ),
    "run.directory-taken": Entry(
        2,
        "The output directory holds another run",
        "A new run never writes into a directory that holds another. `--resume latest` continues it; "
        "another runtime.output_dir starts afresh.",
    ),
    "run.interrupted": Entry(
        130,
        "Stopped by SIGINT",
        "The run stopped at a step boundary because it was asked to. `--resume latest` continues it.",
    ),
    "run.missing": Entry(
        3,
        "There is no run there",
        "The path names no run directory.",
    ),
    "run.nothing-to-resume": Entry(
        3,
        "There is no checkpoint to resume",
        "`--resume` found no complete checkpoint at the place named. `--allow-fresh` starts from the "
        "beginning in that case.",
    ),
    "run.terminated": Entry(
        143,
        "Stopped by SIGTERM",
        "The run stopped at a step boundary because it was asked to. `--resume latest` continues it.",
    ),
    "run.unreadable": Entry(
        3,
        "A file of the run cannot be read",
        "A run file is not what its schema says.",
    ),
    "shard.bad-path": Entry(
        3,
        "A shard key leads out of the data root",
        "Shards are regular files under data.transport.root, also after symbolic links are "
        "followed.",
    ),
    "shard.compressed": Entry(
        3,
        "The shard is compressed",
        "Shards are plain tar so that members can be read by offset.",
    ),
    "shard.duplicate-member": Entry(
        3,
        "A member name stands twice in a shard",
        "Members are found by name, so a name must be unique within its shard.",
    ),
    "shard.empty": Entry(
        3,
        "The shard is empty",
        "The file has 0 bytes.",
    ),
    "shard.interleaved": Entry(
        3,
        "The members of two samples are interleaved",
        "All members of one key stand together; a key that comes back after its group ended "
        "is refused.",
    ),
    "shard.missing": Entry(
        3,
        "The shard does not exist",
        "The path is data.transport.root joined with the shard key of the row.",
    ),
    "shard.missing-member": Entry(
        3,
        "The shard lacks a member that a row names",
        "Members are looked up by exact name.",
    ),
    "shard.not-a-file": Entry(
        3,
        "A shard member is not a regular file",
        "Links and devices inside a tar are never followed.",
    ),
    "shard.not-a-tar": Entry(
        3,
        "The shard is not a tar file",
        "Often an error page saved under the name of a shard, or a damaged header.",
    ),
    "shard.truncated": Entry(
        3,
        "The shard is cut off",
        "The file ends inside a member or before the end-of-archive mark.",
    ),
    "shard.unreadable": Entry(
        3,
        "The shard cannot be read",
        "The operating system refused; its reason is given.",
    ),
    "shard.wrong-size": Entry(
        3,
        "The shard has another size than the index says",
        "shard_size of the index row is compared with the file before anything is read from it.",
    ),
    "train.data-exhausted": Entry(
        3,
        "No usable sample was found",
        "Sample after sample was refused by the camera guards. `solarwm data validate` tells which rows "
        "are bad.",
    ),
    "train.extra-missing": Entry(
        5,
        "The packages for running a model are missing",
        "Training and generation need torch and the packages of the extra `run`. The config desk works "
        "without them.",
    ),
    "train.non-finite": Entry(
        7,
        "A number is not finite",
        "A loss, a gradient or a weight became NaN or infinite. All ranks stopped before the optimizer "
        "step, so the last checkpoint is finite; the event names rank, sample and step.",
    ),
    "train.resume-mismatch": Entry(
        3,
        "The checkpoint belongs to another run",
        "The config, topology or data of the checkpoint contradict this run in a field that a resume must"
        " not change.",
    ),
    "video.timeout": Entry(
        3,
        "Decoding a video took too long",
        "The limit guards against damaged files that keep the decoder busy.",
    ),
    "video.too-few-frames": Entry(
        3,
        "The video has fewer frames than its row says",
        "The index promises num_frames; fewer could be decoded.",
    ),
    "video.undecodable": Entry(
        3,
        "The video cannot be decoded",
        "The member is damaged or no video; the decoder's reason is given.",
    ),
    "weights.codec-unavailable": Entry(
        3,
        "The released codec cannot be opened",
        "Pixels and text of the released profile need the published VAE and text encoder. "
        "Train from pre-encoded latents, or use a small profile, whose codec is shipped.",
    ),
    "weights.duplicate": Entry(
        3,
        "A tensor is in two weight files",
        "A directory of weights must hold every tensor exactly once.",
    ),
    "weights.empty": Entry(
        3,
        "A weight file is empty",
        "The file was read but holds no tensors.",
    ),
    "weights.missing": Entry(
        3,
        "Weights are not there",
        "The path names no safetensors file, no directory of them and no model.pt.",
    ),
    "weights.missing-tensors": Entry(
        3,
        "A weight file is incomplete",
        "Every tensor of the model must be in the file; a partly filled model is never "
        "trained or sampled.",
    ),
    "weights.mixed-prefix": Entry(
        3,
        "Tensor names are prefixed inconsistently",
        "Either all names carry the `model.` prefix or none does.",
    ),
    "weights.no-match": Entry(
        3,
        "The weights belong to another model",
        "Neither published nor diffusers names of this family occur in the file.",
    ),
    "weights.role-missing": Entry(
        3,
        "A checkpoint lacks the asked weights",
        "`live` weights are the state `generator`, `ema` weights `generator_ema` of a "
        "model.pt.",
    ),
    "weights.shape": Entry(
        3,
        "Weights have another size",
        "The file was written by another size of the model; choose the matching "
        "model.profile.",
    ),
    "weights.unexpected-tensors": Entry(
        3,
        "A weight file holds unknown tensors",
        "Tensors that would be ignored usually mean the wrong model or the wrong naming: "
        "they are refused.",
    ),
    "weights.unreadable": Entry(
        3,
        "A weight file cannot be read",
        "It is damaged, cut short, or holds something else than tensors. Only tensor "
        "files are read; pickled objects are refused.",
    ),
}


def entry(code: str) -> Entry:
    """The catalogue entry of `code`; a code nobody catalogued is itself a bug."""
    return CATALOG.get(code) or CATALOG["bug.unexpected"]
