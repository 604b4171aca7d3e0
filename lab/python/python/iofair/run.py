"""Runs of experiments, on threads, processes or machines."""

from __future__ import annotations

import json
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from typing import Any, Callable, Mapping, Sequence

from ._iofair import Plan
from .experiment import Source, load
from .results import Results

#: How often the work of workers that were lost is given to others.
ATTEMPTS = 5


#: What makes policies or clients, by their names.
Factories = Mapping[str, Callable[..., Any]]


def _setting(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plan(
    source: Source,
    stacks: Sequence[str] | None,
    drive: str | None,
    set: Mapping[str, Any] | None,
    sweeps: Mapping[str, Sequence[Any]] | None,
    sample: int | None,
    policies: Factories | None,
    clients: Factories | None,
    rest: Mapping[str, Any],
) -> dict[str, Any]:
    """The arguments of a plan, which can be sent to other processes."""
    experiment = load(source)
    settings = [f"{key}={_setting(value)}" for key, value in (set or {}).items()]
    if drive is not None:
        settings.append(f"drive={drive}")
    if sample is not None:
        settings.append(f"sample={sample}")
    lists = {key: ",".join(map(_setting, values)) for key, values in (sweeps or {}).items()}
    return {
        "path": experiment.path,
        "text": experiment.text,
        "stacks": None if stacks is None else list(stacks),
        "settings": settings,
        "sweeps": [f"{key}={values}" for key, values in lists.items()],
        "policies": list((policies or {}).items()),
        "clients": list((clients or {}).items()),
        **{key: value for key, value in rest.items() if value is not None},
    }


def run(
    experiment: Source,
    *,
    stacks: Sequence[str] | None = None,
    drive: str | None = None,
    set: Mapping[str, Any] | None = None,
    variants: Sequence[str] | None = None,
    repeats: int | None = None,
    time: str | None = None,
    ramp: str | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    policies: Factories | None = None,
    clients: Factories | None = None,
) -> Results:
    """Runs an experiment in simulation.

    experiment: a path, text in TOML, a dictionary, or an `Experiment`.
    stacks: policy stacks, such as "none-none" or "promise", instead of those of the file.
    drive: a drive model or profile instead of that of the file.
    set: keys of the file set to other values, such as {"client.target.count": 4}.
    variants: only these variants.
    repeats: runs of each variant on each stack, with seeds from `seed` on.
    time, ramp: measured time and warm-up, as strings with units ("2s").
    jobs: threads; by default one per processor.
    policies: schedulers in Python, by name: what is called with a `Drive` and gives an object that schedules (see
        `iofair.Policy`). A policy "mine" runs as the stack "prop-mine", unless `stacks` names others such as "max-mine".
    clients: what clients of the experiment do, by their names: generator functions that are called with a `Process` and
        yield `read`, `write`, `trim`, `flush` or `wait`. Each call in flight (`depth`) has a generator of its own.

    Raises `ExperimentError` with the file, the line, what is wrong and what is allowed. Ctrl-C ends it.
    """
    rest = {"variants": variants and list(variants), "repeats": repeats, "time": time, "ramp": ramp, "seed": seed}
    plan = _plan(experiment, stacks, drive, set, None, None, policies, clients, rest)
    return Results(json.loads(Plan(**plan).run(jobs)))


def _one(plan: Mapping[str, Any]) -> dict[str, Any]:
    """One variant on one stack, on one thread: what a worker does."""
    return json.loads(Plan(**plan).run(1))


def sweep(
    experiment: Source,
    keys: Mapping[str, Sequence[Any]],
    *,
    sample: int | None = None,
    stacks: Sequence[str] | None = None,
    drive: str | None = None,
    set: Mapping[str, Any] | None = None,
    repeats: int | None = None,
    time: str | None = None,
    ramp: str | None = None,
    seed: int | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    client: Any = None,
    policies: Factories | None = None,
    clients: Factories | None = None,
) -> Results:
    """Runs an experiment with every combination of values of some keys.

    keys: values by key, such as {"policy.bfq.slice_idle": ["0s", "2ms", "8ms"], "client.target.weight": [100, 300]}.
    sample: run only this many points (a Latin hypercube) instead of all.
    workers: processes; by default one per processor.
    executor: any executor of `concurrent.futures` instead.
    client: a client of Dask (`distributed.Client`) instead, for workers on several machines.
    policies, clients: as in `run`; processes need them at the top level of a module.

    Results are the same with any of them: each run has its own seed. The work of a worker that is lost is repeated.
    """
    rest = {"repeats": repeats, "time": time, "ramp": ramp, "seed": seed}
    plan = _plan(experiment, stacks, drive, set, keys, sample, policies, clients, rest)
    whole = Plan(**plan)
    tasks = [{**plan, "variants": [variant], "stacks": [stack]} for variant in whole.variants for stack in whole.stacks]
    if client is not None:
        parts = client.gather(client.map(_one, tasks, pure=False, retries=ATTEMPTS))
    elif executor is not None:
        parts = [future.result() for future in [executor.submit(_one, task) for task in tasks]]
    else:
        parts = _on_processes(tasks, workers)
    return _joined(parts)


def _on_processes(tasks: Sequence[Mapping[str, Any]], workers: int | None) -> list[dict[str, Any]]:
    """Runs tasks on processes. A pool whose process was killed is of no more use, so the rest is given to a new one."""
    parts: dict[int, dict[str, Any]] = {}
    for attempt in range(ATTEMPTS):
        left = [index for index in range(len(tasks)) if index not in parts]
        try:
            with ProcessPoolExecutor(workers) as pool:
                futures = {index: pool.submit(_one, tasks[index]) for index in left}
                lost = None
                for index, future in futures.items():
                    try:
                        parts[index] = future.result()
                    except BrokenExecutor as error:
                        lost = error
            if lost is None:
                break
        except BrokenExecutor as error:
            lost = error
        if attempt + 1 == ATTEMPTS:
            raise lost
    return [parts[index] for index in range(len(tasks))]


def _joined(parts: Sequence[Mapping[str, Any]]) -> Results:
    first = dict(parts[0])
    for key in ("runs", "statistics"):
        first[key] = [entry for part in parts for entry in part[key]]
    # These are about all runs of an experiment.
    for key in ("synopsis", "warnings", "headline", "expect", "dedicated"):
        first.pop(key, None)
    return Results(first)
