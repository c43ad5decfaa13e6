from __future__ import annotations

import io

from solarwm.inference.progress import GenerationProgress


def test_lines_count_the_clips_of_this_start_and_name_failures():
    stream = io.StringIO()
    progress = GenerationProgress(stream=stream)
    progress.show({"event": "inference_start", "clips": 2})
    made = {"event": "inference_sample", "pass": "right", "slot": 3, "duration_s": 1.25}
    progress.show({**made, "psnr_truth": 16.5})
    progress.show({"event": "inference_error", "pass": "right", "slot": 4, "message": "gone"})
    progress.show({"event": "something_else"})
    progress.close()
    assert stream.getvalue().splitlines() == [
        "clip 1/2 of this rank: right slot 3 16.50 dB (1.2 s)",
        "failed: right slot 4: gone",
    ]
