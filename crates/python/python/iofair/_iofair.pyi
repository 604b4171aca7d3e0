from typing import Optional, Sequence

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
    ) -> None: ...
    @property
    def variants(self) -> list[str]: ...
    @property
    def stacks(self) -> list[str]: ...
    @property
    def runs(self) -> int: ...
    def run(self, jobs: Optional[int] = None) -> str: ...
