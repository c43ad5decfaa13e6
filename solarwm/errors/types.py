"""What can go wrong, said once: every failure a person can cause or mend is a `SolarError`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class SolarError(Exception):
    """One fault with a stable code, told to a person.

    `code` is a key of the catalogue (`config.unknown-key`) and fixes the exit code. `where` names the place
    (`train.yaml:12`, `--set #2`, a path), `why` gives the reason with its numbers, `fixes` are one to three
    texts that can be pasted, `context` holds machine-readable values for `--json` and result files.
    """

    def __init__(
        self,
        code: str,
        headline: str,
        *,
        where: str | None = None,
        why: str = "",
        fixes: Sequence[str] = (),
        context: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(headline)
        self.code = code
        self.headline = headline
        self.where = where
        self.why = why
        self.fixes = tuple(fixes)
        self.context = dict(context or {})

    @property
    def exit_code(self) -> int:
        """The process exit code of this kind of fault."""
        from solarwm.errors.catalog import entry

        return entry(self.code).exit_code

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.headline}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.code, self.headline, self.where, self.why, self.fixes, self.context)


class FaultList(SolarError):
    """Several faults found in one look, all told at once; the first decides the exit code."""

    def __init__(self, faults: Sequence[SolarError], *, headline: str | None = None) -> None:
        if not faults:
            raise ValueError("a FaultList needs at least one fault")
        self.faults = tuple(faults)
        count = len(self.faults)
        text = headline or (f"{count} faults" if count > 1 else self.faults[0].headline)
        super().__init__(self.faults[0].code, text)

    def __reduce__(self) -> tuple[object, ...]:
        return FaultList, (self.faults,)


def _rebuild(
    code: str,
    headline: str,
    where: str | None,
    why: str,
    fixes: Sequence[str],
    context: Mapping[str, object],
) -> SolarError:
    return SolarError(code, headline, where=where, why=why, fixes=fixes, context=context)
