"""What can go wrong while a run works: checkpoints, disks, ranks, numbers, outputs."""

from __future__ import annotations

from solarwm.errors.entry import Entry

RUNS: dict[str, Entry] = {
    "environment.no-compiler": Entry(
        5,
        "Blocks cannot be compiled here",
        "`runtime.compile_blocks` needs a C++ compiler on a CPU and Triton on an accelerator. Install it, "
        "or train without compiled blocks.",
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
    "checkpoint.released-package": Entry(
        3,
        "A published package is no training checkpoint",
        "It holds weights without the state of a run: training can start from it, not go on with it.",
    ),
    "checkpoint.source-mismatch": Entry(
        3,
        "The weights come from another training than expected",
        "Family, stage, rule, camera transform or step of a source of weights differ from what the "
        "config expects; nothing was loaded.",
    ),
    "checkpoint.unsafe": Entry(
        3,
        "The checkpoint holds something that is not a tensor",
        "Only tensors and plain records are read. Anything that could run code, and any path "
        "that leaves the checkpoint, is refused.",
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
    "inference.clip-too-short": Entry(
        3,
        "A clip has too few frames",
        "The clip that a case asks for does not reach from its start frame over the frames the model needs.",
    ),
    "inference.image": Entry(
        3,
        "The picture cannot be read",
        "--image names a PNG, JPEG or WebP picture that becomes the first frame; this one is missing or damaged.",
    ),
    "inference.incomplete": Entry(
        4,
        "Some clips are missing",
        "At least one clip could not be made, or an artifact is not what its manifest says. The reasons lie in "
        "generation/<pass>/errors/. The same command with --resume fills the missing clips only.",
    ),
    "inference.name-taken": Entry(
        2,
        "The name of a clip to publish is taken",
        "A camera-length publication gives every clip one public name by data set and clip, and never replaces a "
        "file. Nothing was generated.",
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
    "inference.trajectory": Entry(
        2,
        "The trajectory cannot be read",
        "A trajectory is held keys and how many latent frames they are held, separated by commas: w s a d move "
        "forward, back, left, right; i k j l turn up, down, left, right; a dot stands still. `w*19,j*7` walks and "
        "then turns left, `wl*5` does two things at once.",
    ),
    "inference.unknown-solver": Entry(
        2,
        "There is no such solver",
        "A validation or inference pass names its solver; the route says which it can sample with.",
    ),
    "inference.video": Entry(
        3,
        "A video could not be encoded",
        "The H.264 encoder refused the frames of one clip. The clip is left out with an error record, the others "
        "go on.",
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
    "play.address": Entry(
        5,
        "Nothing can be served there",
        "solarwm play listens on --host and --port. The port is taken, not permitted, or the address is not one "
        "of this machine.",
    ),
    "play.not-causal": Entry(
        2,
        "The model cannot be walked through",
        "solarwm play makes a world chunk by chunk without an end. It needs a Stage1 or Stage2 model with an "
        "autoregressive pass and a bounded window of history; bidirectional models make all frames at once.",
    ),
    "preencode.incomplete": Entry(
        4,
        "Some clips could not be encoded",
        "The latent data set was published without them. control/errors.jsonl below output_root names "
        "each clip with its reason.",
    ),
    "preencode.other-work": Entry(
        2,
        "The place of a latent data set is taken",
        "output_root, logical_output_root or the work directory beside it holds what was made from "
        "another index, size or codec. Existing data sets are never touched.",
    ),
    "preflight.timeout": Entry(
        5,
        "The small run of a preflight took too long",
        "A part of it did not end within --timeout. Released models load for minutes from a cold disk; a hung run "
        "names itself in its result after distributed.timeout_s.",
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
    "run.still-running": Entry(
        5,
        "The run has not ended",
        "solarwm run stop asked the ranks to end, and after the wait some are there yet: in a long step, a long save, "
        "or stuck. --kill ends them by force; checkpoints stay whole.",
    ),
    "run.stop-refused": Entry(
        5,
        "The run may not be ended",
        "Its processes belong to another user. Ask that user, or the administrator of the machine.",
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
    "store.cache-too-small": Entry(
        2,
        "One shard is larger than the whole cache",
        "Shards of a store are read from data.transport.cache_dir, which holds at most "
        "data.transport.cache_max_gib.",
    ),
    "store.denied": Entry(
        5,
        "The store refuses the read",
        "The credentials are those that the store's own library finds on this machine: environment "
        "variables, its configuration files, the machine's role.",
    ),
    "store.no-answer": Entry(
        5,
        "The store does not answer",
        "Every read is tried again, with growing and drawn pauses, until its tries or the deadline of "
        "the shard are used up. Nothing that came short is ever used.",
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
    "train.later-checkpoints": Entry(
        2,
        "The run has later checkpoints than the one to resume",
        "A run directory holds one course of training. To go back to an earlier checkpoint, branch off into"
        " a new output directory, or move the later checkpoints away.",
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
    "validation.plan-damaged": Entry(
        3,
        "The frozen validation plan is damaged",
        "validation/frozen-plan.json of a run directory carries a digest of its own content; this file is not "
        "what the run wrote.",
    ),
    "validation.plan-differs": Entry(
        3,
        "The run would validate something else than before",
        "At its first validation a run freezes which clips it validates, how they are cut and how every pass samples, "
        "in validation/frozen-plan.json, so that figures of different steps can be compared. Paths, transport and "
        "the number of ranks may change; index, geometry, seeds, counts and passes may not.",
    ),
}
