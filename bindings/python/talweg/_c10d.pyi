from torch.distributed import Backend as _Backend

class CallValueError(ValueError, RuntimeError):
    """A call that can never work."""

class CallTypeError(TypeError, RuntimeError):
    """A call on types that can never work."""

class Backend(_Backend):
    """What `talweg.torch.backend` returns."""

    def describe(self) -> str:
        """How the group is connected and what was chosen and why, a "key: value (origin)" a line."""
    def explain(self, operation: str, count: int, type: str) -> str:
        """Which algorithm would carry a call, and how long it is expected to take."""
    def statistics(self) -> dict[str, int]: ...

def create(options: object, parent: Backend | None = None) -> Backend: ...
