"""Results as plain data, numpy, pandas or Arrow."""

from __future__ import annotations

from typing import Any, Iterator, Mapping

#: The columns of a client, with their units.
COLUMNS = {
    "bytes_per_s": "bytes a second that its calls got",
    "drive_bytes_per_s": "bytes a second of it that reached the drive",
    "iops": "calls a second",
    "latency_mean_ns": "mean latency in nanoseconds",
    "latency_p50_ns": "median latency in nanoseconds",
    "latency_p99_ns": "99th percentile of the latency in nanoseconds",
    "latency_p999_ns": "99.9th percentile of the latency in nanoseconds",
    "latency_max_ns": "longest latency in nanoseconds",
}


class Results:
    """Results of an experiment.

    data: the object that `iofair-lab run --json` prints; without claims and texts after a sweep.
    """

    def __init__(self, data: Mapping[str, Any]):
        self.data = data

    def __repr__(self) -> str:
        return f"<iofair.Results of {self.data['experiment']}: {len(self.runs)} runs>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Results) and self.data == other.data

    @property
    def runs(self) -> list[dict[str, Any]]:
        """Every run: variant, stack, repeat, seed, the total and all clients."""
        return self.data["runs"]

    @property
    def claims(self) -> list[dict[str, Any]]:
        """Every claim of the experiment with its verdict; none after a sweep."""
        return self.data.get("expect", [])

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each client of each run, and one named "total" for the drive; swept keys are columns."""
        for run in self.runs:
            head = {key: run[key] for key in ("variant", "drive", "stack", "repeat", "seed", "seconds")}
            head.update(run.get("swept", {}))
            total = run["total"]
            yield {**head, "client": "total", "group": "", **_numbers(total["bytes_per_s"], total["iops"], None, {})}
            for client in run["clients"]:
                numbers = (client["bytes_per_s"], client["iops"], client.get("drive_bytes_per_s"), client["latency_ns"])
                yield {**head, "client": client["name"], "group": client["group"], **_numbers(*numbers)}

    def columns(self) -> dict[str, list[Any]]:
        """The rows as one list a column. What a row does not have is None."""
        rows = list(self.rows())
        names = list(dict.fromkeys(name for row in rows for name in row))
        return {name: [row.get(name) for row in rows] for name in names}

    def to_numpy(self) -> dict[str, Any]:
        """The columns as numpy arrays; missing numbers are NaN."""
        import numpy

        def array(values: list[Any]) -> Any:
            numbers = [value for value in values if value is not None]
            if numbers and all(isinstance(value, (int, float)) for value in numbers) and len(numbers) < len(values):
                return numpy.array([numpy.nan if value is None else value for value in values], dtype=float)
            return numpy.array(values)

        return {name: array(values) for name, values in self.columns().items()}

    def to_pandas(self) -> Any:
        """The rows as a `pandas.DataFrame`."""
        import pandas

        return pandas.DataFrame(self.columns())

    def to_arrow(self) -> Any:
        """The rows as a `pyarrow.Table`."""
        import pyarrow

        return pyarrow.table(self.columns())


def _numbers(rate: int, iops: int, drive: int | None, latency: Mapping[str, int]) -> dict[str, Any]:
    times = {f"latency_{name}_ns": latency.get(name) for name in ("mean", "p50", "p99", "p999", "max")}
    return {"bytes_per_s": rate, "drive_bytes_per_s": drive, "iops": iops, **times}
