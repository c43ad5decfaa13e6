"""What settings are called in other trainers, and where they stand here."""

from __future__ import annotations

from typing import NamedTuple


class Synonyms(NamedTuple):
    """Names from elsewhere for one setting."""

    targets: tuple[str, ...]
    """Dotted keys, the first that the family has is meant; none where there is no such setting."""
    names: str
    """Lower-case names with underscores, parted by blanks."""
    remark: str = ""


_STEPS = "there are no epochs: a run is counted in optimizer steps"
_MICRO = "the batch of one rank and one forward pass"
_SAVE = ("runtime.save_every", "checkpoint.save_every_steps")
_VALIDATE = (
    "runtime.validate_every",
    "validation.validate_every_steps",
)
_SOLVER_STEPS = (
    "validation.passes[].num_inference_steps",
    "validation.inference.num_inference_steps",
    "validation.num_inference_steps",
    "inference.num_inference_steps",
)
_GUIDANCE = (
    "validation.inference.guidance.cfg_scale",
    "inference.guidance.cfg_scale",
    "train.real_guidance_scale",
)

GROUPS: tuple[Synonyms, ...] = (
    Synonyms(
        ("distributed.sequence_parallel_size",),
        "sp sp_size sp_degree sp_world_size sequence_parallel sequence_parallel_degree seq_parallel "
        "seq_parallel_size ulysses ulysses_degree ulysses_size ulysses_parallel_degree "
        "ulysses_sequence_parallel_size cp cp_size cp_degree context_parallel context_parallel_size "
        "context_parallel_degree ring_degree",
        "ranks that share one sample",
    ),
    Synonyms(
        ("distributed.world_size",),
        "gpus num_gpus n_gpus ngpus num_devices devices world num_processes nproc nproc_per_node "
        "world_size_total ranks num_ranks",
    ),
    Synonyms(
        (),
        "tp tp_size tensor_parallel tensor_parallel_size tensor_model_parallel_size pp pp_size "
        "pipeline_parallel_size dp dp_size data_parallel_size dp_degree",
        "ranks are shared out by distributed.world_size and sequence_parallel_size alone",
    ),
    Synonyms(("train.optimizer.lr",), "learning_rate lr base_lr max_lr peak_lr init_lr lr_init"),
    Synonyms(
        ("train.micro_batch_size",),
        "batch_size bs batch train_batch_size micro_batch micro_bs batch_size_per_gpu "
        "per_device_batch_size per_device_train_batch_size per_gpu_batch_size local_batch_size "
        "train_micro_batch_size_per_gpu",
        _MICRO,
    ),
    Synonyms(("train.global_batch_size",), "global_batch total_batch_size effective_batch_size"),
    Synonyms(
        ("train.grad_accum",),
        "accumulation accum grad_accum_steps gradient_accumulation accumulate_grad_batches "
        "grad_accumulation grad_accumulation_steps gradient_accumulation_steps accumulation_steps ga",
    ),
    Synonyms(
        ("train.optimizer.grad_clip",),
        "clip_grad clip_grad_norm gradient_clipping gradient_clip_val max_grad_norm grad_norm_clip "
        "max_norm clip_norm",
    ),
    Synonyms(("train.optimizer.weight_decay",), "wd adam_weight_decay l2"),
    Synonyms(("train.optimizer.eps",), "adam_epsilon adam_eps optimizer_eps"),
    Synonyms(("train.optimizer.betas",), "adam_betas adam_beta1 adam_beta2 beta1 beta2 momentum"),
    Synonyms(
        ("train.warmup_steps", "train.optimizer.warmup_steps"),
        "warmup lr_warmup_steps warmup_iters num_warmup_steps lr_warmup warmup_ratio",
    ),
    Synonyms(
        ("train.max_steps",),
        "iterations num_iterations max_iters total_iters steps num_steps total_steps train_steps "
        "training_steps max_train_steps num_train_steps n_steps",
    ),
    Synonyms(
        ("train.max_steps",), "epochs epoch max_epochs num_epochs num_train_epochs n_epochs", _STEPS
    ),
    Synonyms(
        _SAVE,
        "save_steps save_interval save_freq checkpoint_every checkpoint_interval checkpointing_steps "
        "checkpoint_freq ckpt_every ckpt_interval save_iters",
    ),
    Synonyms(
        _VALIDATE,
        "val_every eval_every eval_steps eval_interval val_interval validation_interval "
        "validate_interval eval_freq val_check_interval",
    ),
    Synonyms(
        ("runtime.log_every",), "log_interval logging_steps log_steps log_freq log_every_n_steps"
    ),
    Synonyms(
        ("runtime.output_dir",),
        "output output_path out_dir save_dir save_path work_dir log_dir logdir exp_dir run_dir "
        "checkpoint_dir ckpt_dir",
        "everything a run writes is below it",
    ),
    Synonyms(("runtime.device",), "accelerator"),
    Synonyms(("runtime.compile_flex",), "compile torch_compile use_compile compile_model"),
    Synonyms(
        ("runtime.trackers",),
        "report_to logger loggers use_wandb wandb_mode tracker",
    ),
    Synonyms(("data.seed",), "random_seed global_seed manual_seed rng_seed train_seed"),
    Synonyms(
        ("data.transport.root",),
        "dataset_path data_path data_dir dataset_dir data_root dataset root_dir",
    ),
    Synonyms(("data.num_workers",), "workers dataloader_num_workers num_data_workers n_workers"),
    Synonyms(
        ("data.pixel_frames",),
        "num_frames n_frames frames sample_n_frames clip_length video_length",
    ),
    Synonyms(("data.fps",), "frame_rate target_fps fps_target video_fps sample_fps"),
    Synonyms(
        ("data.height",),
        "resolution image_size video_size size",
        "data.height and data.width, in pixels",
    ),
    Synonyms(
        ("train.fsdp.param_dtype",),
        "precision mixed_precision dtype torch_dtype weight_dtype bf16 fp16 amp",
    ),
    Synonyms(
        ("train.fsdp.activation_checkpointing",),
        "gradient_checkpointing grad_checkpointing checkpoint_activations activation_checkpoint "
        "use_gradient_checkpointing recompute",
    ),
    Synonyms(("train.fsdp.strategy",), "fsdp_strategy fsdp_sharding_strategy sharding zero_stage"),
    Synonyms(("train.ema.decay",), "ema_decay ema_rate ema_beta"),
    Synonyms(("train.timestep_mode",), "timestep_sampling timestep_sampler"),
    Synonyms(("model.timestep_shift",), "shift flow_shift timestep_shift_scale sigma_shift"),
    Synonyms(("model.adapter.rank",), "lora_rank lora_r network_dim lora_dim"),
    Synonyms(("model.adapter.alpha",), "lora_alpha network_alpha"),
    Synonyms(
        ("model.base_path", "model.checkpoint_path"),
        "pretrained_model_name_or_path model_path pretrained_path pretrained ckpt_path base_model",
    ),
    Synonyms(
        ("checkpoint.path", "checkpoint.resume_from"), "ckpt load_from init_from load_checkpoint"
    ),
    Synonyms(
        (),
        "resume resume_from_checkpoint auto_resume resume_path",
        "resume with `solarwm train --resume latest`",
    ),
    Synonyms(_SOLVER_STEPS, "sampling_steps sample_steps infer_steps nfe num_sampling_steps"),
    Synonyms(_GUIDANCE, "cfg cfg_scale guidance guidance_scale"),
    Synonyms(
        ("validation.sample_count",),
        "num_validation_videos num_samples num_val_samples eval_samples",
    ),
)


def find(name: str) -> Synonyms | None:
    """The setting that other trainers call `name`, or None."""
    return next((group for group in GROUPS if name in group.names.split()), None)
