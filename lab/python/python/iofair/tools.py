"""Replays of recorded traces, and profiles fitted to measurements."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Mapping, Sequence, Union

from . import _iofair
from .run import Factories

Path = Union[str, "os.PathLike[str]"]


class Replay:
    """A replay of a trace.

    data: the object that `iofair-lab replay --json` prints.
    """

    def __init__(self, data: Mapping[str, Any]):
        self.data = data

    def __repr__(self) -> str:
        return f"<iofair.Replay on {self.data['drive']}: {', '.join(it['stack'] for it in self.data['results'])}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Replay) and self.data == other.data

    @property
    def results(self) -> list[dict[str, Any]]:
        """The recording, if the trace has completions, and every stack: all requests together, and by group."""
        return self.data["results"]

    @property
    def agreement(self) -> dict[str, Any] | None:
        """How far the replay under the recorded stack on the recorded drive is from the recording."""
        return self.data["agreement"]

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with a row for each group of each stack, numbers and percentiles as columns."""
        import pandas

        rows = []
        for played in self.results:
            head = {"stack": played["stack"], "seconds": played["seconds"]}
            rows += [{**head, **group} for group in played["groups"]]
        return pandas.json_normalize(rows, sep="_")


def replay(
    traces: Path | Sequence[Path],
    *,
    stacks: Sequence[str] | None = None,
    drive: str | None = None,
    format: str | None = None,
    columns: Mapping[str, str | int] | None = None,
    mode: str = "open",
    scale: float = 1,
    duration: str | None = None,
    contracts: Path | None = None,
    groups: Mapping[str, str] | None = None,
    seed: int = 1,
    policies: Factories | None = None,
) -> Replay:
    """Replays a trace in the simulator: what would other policies have done with this load?

    traces: a file or several, whose requests are merged by time; compressed with gzip, zstd, xz or bzip2 if you like.
    stacks: policy stacks, besides the recorded one.
    drive: drive model or profile; by default the recorded one.
    format: format of the files; by default it is recognised.
    columns: what the columns of a table are, such as {"time:us": "ts", "op": 3}; by default their names say it.
    mode: when requests are sent: at their recorded times ("open"), when what they waited for is complete ("closed"), or
        after the recorded pause as well ("think").
    scale: how many times as fast as recorded.
    duration: only so much of the trace, such as "60s".
    contracts: a contract file.
    groups: groups of streams by patterns of their names, such as {"web.*": "tenants/web"}.
    policies: schedulers in Python, as in `run`.

    Raises `ExperimentError` with what is wrong with the trace, the contracts or the stacks.
    """
    files = [traces] if isinstance(traces, (str, os.PathLike)) else list(traces)
    text = _iofair.replay(
        [os.fspath(it) for it in files],
        stacks=list(stacks or []),
        drive=drive,
        format=format,
        columns=None if columns is None else ",".join(f"{field}={it}" for field, it in columns.items()),
        mode=mode,
        scale=scale,
        duration=duration,
        contracts=None if contracts is None else os.fspath(contracts),
        groups=[f"{pattern}={group}" for pattern, group in (groups or {}).items()],
        seed=seed,
        policies=list((policies or {}).items()),
    )
    return Replay(json.loads(text))


@dataclass(frozen=True)
class Calibration:
    """A profile that was fitted to measurements.

    profile: its text; written to a file, it is a drive everywhere a drive is named.
    report: the object that `iofair calibrate --json` prints: the model's numbers, and each measured value beside the model's.
    """

    profile: str
    report: Mapping[str, Any]

    def save(self, path: Path) -> None:
        """Writes the profile."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.profile)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with a row for each measured value: measured, of the model, error in percent."""
        import pandas

        return pandas.DataFrame(list(self.report["rows"]))


def calibrate(drive: str | None = None, *, results: Path | None = None) -> Calibration:
    """Fits a profile to a drive.

    drive: a drive model or profile, measured in simulated time; to try how well models are found again.
    results: the JSON that fio printed for the job of `iofair calibrate --print-fio` on any machine.

    `iofair calibrate` measures the drives of this machine. Raises `ExperimentError` with what is wrong.
    """
    profile, report = _iofair.calibrate(drive, None if results is None else os.fspath(results))
    return Calibration(profile, json.loads(report))
