"""A small looping GIF of a video, for documents that cannot show MP4."""

from __future__ import annotations

import io
from pathlib import Path

from solarwm.storage import durable


def write_gif(
    video_path: Path, gif_path: Path, *, scale: int = 2, every: int = 2, colors: int = 64
) -> None:
    """Every `every`-th frame of a video, enlarged `scale` times, in one shared palette.

    Needs the `data` extra (av, pillow). Replaces a file at `gif_path`.
    """
    import av
    from PIL import Image

    with av.open(str(video_path)) as container:
        stream = container.streams.video[0]
        rate = float(stream.average_rate or 16)
        pictures = [
            frame.to_image()
            for place, frame in enumerate(container.decode(stream))
            if not place % every
        ]
    if not pictures:
        raise ValueError(f"{video_path} has no frames")
    size = (pictures[0].width * scale, pictures[0].height * scale)
    pictures = [picture.resize(size, Image.Resampling.BICUBIC) for picture in pictures]
    samples = pictures[:: max(1, len(pictures) // 8)]
    sheet = Image.new("RGB", (size[0], size[1] * len(samples)))
    for place, picture in enumerate(samples):
        sheet.paste(picture, (0, place * size[1]))
    palette = sheet.quantize(colors)
    indexed = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    body = io.BytesIO()
    indexed[0].save(
        body,
        format="GIF",
        save_all=True,
        append_images=indexed[1:],
        duration=round(1000 * every / rate),
        loop=0,
        optimize=True,
    )
    durable.write_bytes_atomic(gif_path, body.getvalue())
