from typing import Any, Callable, Optional, Sequence, Tuple, Union

__version__: str

class ExperimentError(ValueError):
    """An experiment that cannot be run: the file, the place in it, what is wrong and what is allowed."""

class Plan:
    """An experiment and what is changed about it."""

    def __init__(
        self,
        path: str,
        text: Optional[str] = None,
        *,
        stacks: Optional[Sequence[str]] = None,
        settings: Sequence[str] = ...,
        sweeps: Sequence[str] = ...,
        variants: Sequence[str] = ...,
        repeats: Optional[int] = None,
        time: Optional[str] = None,
        ramp: Optional[str] = None,
        seed: Optional[int] = None,
        policies: Sequence[Tuple[str, Callable[..., Any]]] = ...,
        clients: Sequence[Tuple[str, Callable[..., Any]]] = ...,
    ) -> None: ...
    @property
    def variants(self) -> list[str]: ...
    @property
    def stacks(self) -> list[str]: ...
    @property
    def runs(self) -> int: ...
    def run(self, jobs: Optional[int] = None) -> str: ...

class Request:
    """A request that a policy holds, as it was when it was submitted."""

    id: int
    operation: str
    offset: int
    length: int
    client: int
    group: str
    weight: int
    minimum: Optional[int]
    waits: bool
    submitted: int

class Drive:
    """The drive that a policy is for."""

    rotational: bool
    depth: int
    capacity: int
    longest: int

class Process:
    """The process whose calls a client in Python decides."""

    number: int
    slot: int
    file_size: int
    block: int
    seed: int

class Action:
    """What a client in Python does next: a call or a pause."""

    @staticmethod
    def call(operation: str, offset: int, length: int) -> Action: ...
    @staticmethod
    def flush() -> Action: ...
    @staticmethod
    def wait(time: Union[int, str]) -> Action: ...

class Done:
    """What a client in Python is told when its action is done."""

    now: int
    latency: Optional[int]

def replay(
    traces: Sequence[str],
    *,
    stacks: Sequence[str],
    drive: Optional[str],
    format: Optional[str],
    columns: Optional[str],
    mode: str,
    scale: float,
    duration: Optional[str],
    contracts: Optional[str],
    groups: Sequence[str],
    seed: int,
    policies: Sequence[Tuple[str, Callable[..., Any]]],
) -> str: ...
def calibrate(drive: Optional[str], results: Optional[str]) -> Tuple[str, str]: ...
