"""`python -m solarwm` is the same program as the console script."""

from __future__ import annotations

from solarwm.cli.app import main

if __name__ == "__main__":
    main()
