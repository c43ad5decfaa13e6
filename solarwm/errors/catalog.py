"""Every error code: its exit code, and the text that `solarwm explain CODE` prints.

The first word of a code names what was wrong; the exit code follows the nature of the fault: 2 command line or
config, 3 a named file, 4 partial output, 5 surroundings, 6 another rank, 7 non-finite numbers, 70 a bug.
"""

from __future__ import annotations

from solarwm.errors.desk_faults import DESK
from solarwm.errors.entry import Entry
from solarwm.errors.file_faults import FILES
from solarwm.errors.run_faults import RUNS

CATALOG: dict[str, Entry] = dict(sorted({**DESK, **FILES, **RUNS}.items()))


def entry(code: str) -> Entry:
    """The catalogue entry of `code`; a code nobody catalogued is itself a bug."""
    return CATALOG.get(code) or CATALOG["bug.unexpected"]
