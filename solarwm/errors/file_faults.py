"""What can be wrong in the files a config names: indexes, shards, cameras, videos, weights."""

from __future__ import annotations

from solarwm.errors.entry import Entry

FILES: dict[str, Entry] = {
    "camera.convention": Entry(
        3,
        "The convention of a camera file is not told, or contradicts",
        "Camera-to-world and world-to-camera matrices look alike; a bare array needs --convention, and a "
        "file whose array name tells it must agree.",
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
    "compare.nothing": Entry(
        3,
        "There is nothing to compare",
        "`solarwm compare` takes two run directories of `solarwm infer`, or two validation steps, with clips "
        "that both have.",
    ),
    "compare.unlike": Entry(
        3,
        "The two generations are not of the same cases",
        "A comparison is fair only over the same samples, seeds, cameras, prompts and passes, made with the "
        "same settings. --allow names a setting that is meant to differ.",
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
    "data.reader-blocked": Entry(
        5,
        "A reader of samples does not answer",
        "A sample was not there within half of distributed.timeout_s. The sample is named; the disk, the "
        "store or a decoder behind it does not answer.",
    ),
    "data.too-few-samples": Entry(
        3,
        "The data do not fill one global batch",
        "One epoch of the index has fewer samples than a global batch takes, so that a step would hold a "
        "sample twice. epoch_repeats of the rows counts.",
    ),
    "data.too-many-bad-samples": Entry(
        3,
        "More samples cannot be read than may be passed over",
        "With data.on_bad_sample: skip a run goes on without samples that cannot be read, up to "
        "data.max_bad_samples different ones in one start. The samples are named; the events "
        "`sample_skipped` hold the reason of each.",
    ),
    "import.bad-row": Entry(
        3,
        "A row of the table cannot be imported",
        "The table is CSV, JSON or JSON Lines with one clip a row; it names a video once, and a frame rate "
        "is a number.",
    ),
    "import.encoding": Entry(
        3,
        "The table or caption is not UTF-8",
        "Texts are read as UTF-8, with or without a byte order mark. The offending byte is named.",
    ),
    "import.nothing": Entry(
        3,
        "There is nothing to import",
        "`solarwm data import` takes a folder with MP4 videos, or a table (.csv, .json, .jsonl) that names them.",
    ),
    "import.nothing-left": Entry(
        3,
        "No clip could be imported",
        "Every clip was dropped by a rule or had a fault; nothing was written. The line of each clip says why.",
    ),
    "import.partial": Entry(
        4,
        "Some clips could not be imported",
        "The others were written and indexed. The line of each clip that was left out says why.",
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
    "latent.contract": Entry(
        3,
        "A latent record does not keep its contract",
        "Names, sizes and number types of a record's tensors follow from family, frames, height and "
        "width; the family adds rules (masks, indices, first latents).",
    ),
    "latent.manifest": Entry(
        3,
        "The manifest of a latent record tells of another one",
        "Its `preencoding` block must carry the format, frames, size, number type and window that the "
        "data section asks for.",
    ),
    "latent.marker": Entry(
        3,
        "A latent data set is not the one the config asks for",
        "COMPLETE.json of a latent data set keeps what it was made from: index, geometry, number type, "
        "codec. Training compares it with its own config before the first step.",
    ),
    "latent.none": Entry(
        3,
        "No clip could be encoded",
        "Every row of the index failed, so no latent data set was published.",
    ),
    "latent.not-finite": Entry(
        3,
        "A latent record holds NaN or infinity",
        "Such a record is neither written nor trained on.",
    ),
    "latent.other-encoder": Entry(
        3,
        "A latent record was made by another codec",
        "Latents of one autoencoder mean nothing to a model trained on those of another.",
    ),
    "latent.unreadable": Entry(
        3,
        "A latent record cannot be read",
        "Records are safetensors files and are parsed strictly; pickles are never opened.",
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
    "shard.wrong-digest": Entry(
        3,
        "The shard is not the one that the index names",
        "A shard fetched from a store is hashed when its rows carry shard_digest (BLAKE2s).",
    ),
    "shard.wrong-size": Entry(
        3,
        "The shard has another size than the index says",
        "shard_size of the index row is compared with the file before anything is read from it.",
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
    "merge.refused": Entry(
        3,
        "The weights do not fit together",
        "A merge would touch nothing, or meets keys or shapes that the chosen policies call an error. The report "
        "counts every key in one category; solarwm checkpoint inspect shows the keys of a file.",
    ),
    "merge.weight": Entry(
        2,
        "A weight of the merge is no finite number",
        "--w, --alpha and the weights of an average are finite; those of an average do not sum to zero.",
    ),
    "quantize.nothing": Entry(
        3,
        "No layer can be quantised",
        "Only matrices named `...weight` below --within are taken, but those --skip names. The file has none.",
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
    "weights.nonfinite": Entry(
        3,
        "Weights hold numbers that are not finite",
        "A tensor of the file holds NaN or infinity; a model started from it would give nothing else.",
    ),
    "weights.role-missing": Entry(
        3,
        "A checkpoint lacks the asked weights",
        "`live` weights are the state `generator`, `ema` weights `generator_ema` of a model.pt.",
    ),
    "weights.shape": Entry(
        3,
        "Weights have another size",
        "The file was written by another size of the model; choose the matching model.profile.",
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
