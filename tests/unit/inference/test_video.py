from __future__ import annotations

import numpy as np
import pytest

from solarwm.inference import video

av = pytest.importorskip("av")


def _scene(frames=7, height=64, width=96):
    rows = np.linspace(0, 255, height)[None, :, None]
    columns = np.linspace(0, 255, width)[None, None, :]
    phase = np.arange(frames)[:, None, None] * 8.0
    channels = [
        rows + 0 * columns + 0 * phase,
        columns + 0 * rows + 0 * phase,
        (rows + phase) / 2 + 0 * columns,
    ]
    return np.clip(np.stack(channels, axis=-1), 0, 255).astype(np.uint8)


def test_a_written_video_is_h264_yuv420p_with_its_index_in_front(tmp_path):
    path = tmp_path / "video.mp4"
    video.write_mp4(path, _scene(), 16)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert stream.codec_context.pix_fmt == "yuv420p"
        assert stream.average_rate == 16
        assert stream.frames == 7
    body = path.read_bytes()
    assert body.index(b"moov") < body.index(b"mdat")


def test_a_smooth_scene_survives_the_codec(tmp_path):
    scene = _scene()
    video.write_mp4(tmp_path / "video.mp4", scene, 16)
    back = video.read_mp4(tmp_path / "video.mp4")
    assert back.shape == scene.shape
    assert np.abs(back.astype(int) - scene).mean() < 4


def test_equal_frames_give_equal_bytes(tmp_path):
    for name in ("a.mp4", "b.mp4"):
        video.write_mp4(tmp_path / name, _scene(), 16)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


def test_truth_stands_left_of_the_generated_clip_and_the_shorter_clip_ends_it():
    truth, generated = _scene(frames=7), 255 - _scene(frames=5)
    both = video.side_by_side(truth, generated)
    assert both.shape == (5, 64, 192, 3)
    assert (both[:, :, :96] == truth[:5]).all()
    assert (both[:, :, 96:] == generated).all()


@pytest.mark.parametrize(
    "frames",
    [
        np.zeros((2, 64, 96, 3), dtype=np.float32),
        np.zeros((2, 63, 96, 3), dtype=np.uint8),
        np.zeros((64, 96, 3), dtype=np.uint8),
    ],
)
def test_frames_that_cannot_be_written_are_refused(tmp_path, frames):
    with pytest.raises(ValueError, match=r"frames|H\.264"):
        video.write_mp4(tmp_path / "video.mp4", frames, 16)


def test_camera_files_hold_the_absolute_track_in_float64(tmp_path):
    track = np.broadcast_to(np.eye(4), (5, 4, 4)).copy()
    track[:, 0, 3] = np.arange(5) / 3
    names = video.write_cameras(
        tmp_path,
        track,
        viewmats_F44=np.broadcast_to(np.eye(4), (2, 4, 4)),
        intrinsics_33=np.eye(3),
        frame_indices=(3, 4, 5, 6, 7),
        fps=16,
    )
    assert names == ("camera.npy", "camera.npz")
    stored = np.load(tmp_path / "camera.npy", allow_pickle=False)
    assert stored.dtype == np.float64
    assert (stored == track).all()
    with np.load(tmp_path / "camera.npz", allow_pickle=False) as archive:
        assert set(archive) == {"c2w", "relative_w2c", "intrinsics", "frame_indices", "fps"}
        assert archive["relative_w2c"].dtype == np.float32


def test_a_track_with_a_hole_is_refused(tmp_path):
    track = np.broadcast_to(np.eye(4), (5, 4, 4)).copy()
    track[2, 0, 0] = np.nan
    with pytest.raises(ValueError, match="finite"):
        video.write_cameras(
            tmp_path,
            track,
            viewmats_F44=track,
            intrinsics_33=np.eye(3),
            frame_indices=(0,),
            fps=16,
        )
