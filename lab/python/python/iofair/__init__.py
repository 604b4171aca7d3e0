"""Experiments on I/O schedulers in simulation.

>>> import iofair
>>> results = iofair.run("figure-1.toml", stacks=["none-none", "promise"])  # doctest: +SKIP
>>> results.to_pandas()                                                     # doctest: +SKIP

Rates are in bytes a second, latencies in nanoseconds, times of experiments are strings with units ("500ms", "2s").
The same experiment and seed give the same results on any machine and with any number of threads or workers.
"""

from ._iofair import ExperimentError, __version__
from .experiment import Experiment, load
from .programs import Action, Client, Done, Drive, Policy, Process, Request, flush, read, trim, wait, write
from .results import Results
from .run import run, sweep
from .tools import Calibration, Replay, calibrate, replay

__all__ = [
    "Action",
    "Calibration",
    "Client",
    "Done",
    "Drive",
    "Experiment",
    "ExperimentError",
    "Policy",
    "Process",
    "Replay",
    "Request",
    "Results",
    "__version__",
    "calibrate",
    "flush",
    "load",
    "read",
    "replay",
    "run",
    "sweep",
    "trim",
    "wait",
    "write",
]
