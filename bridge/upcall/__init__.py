"""Any running program can ask its people a question and get the answer back, exactly once.

    from upcall import ask

    if ask("Deploy?", ["Yes", "No"]) == "Yes":
        deploy()

Inside a program that runs `asyncio`, use `Session`.
"""

# No import at all, `__future__` included: with `python -m upcall` the working folder is the
# first place to be searched until `__main__` has run.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from upcall.answer import Answer
    from upcall.blocking import ask
    from upcall.model.errors import (
        AmbiguousLabels,
        Cancelled,
        ConfigInvalid,
        Declined,
        HubError,
        InvalidAsk,
        NoAnswer,
        Superseded,
        TimedOut,
        TransportError,
        Unreachable,
        UpcallError,
        UsageError,
    )
    from upcall.session.host import Session

__version__ = "0.1.0"
__all__ = [
    "AmbiguousLabels",
    "Answer",
    "Cancelled",
    "ConfigInvalid",
    "Declined",
    "HubError",
    "InvalidAsk",
    "NoAnswer",
    "Session",
    "Superseded",
    "TimedOut",
    "TransportError",
    "Unreachable",
    "UpcallError",
    "UsageError",
    "__version__",
    "ask",
]

# Resolved when first used: `upcall ask` imports this package and must stay light.
_HOMES = {"Answer": "upcall.answer", "ask": "upcall.blocking", "Session": "upcall.session.host"}
_ERRORS = "upcall.model.errors"


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'upcall' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES.get(name, _ERRORS)), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
