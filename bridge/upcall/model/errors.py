"""Every error that this project raises on purpose.

* `UpcallError`
    * `UsageError`: the caller gave something that cannot be used; it names what
        * `InvalidAsk`: an ask is out of bounds
        * `AmbiguousLabels`: two labels that a person could not tell apart
        * `ConfigInvalid`: the configuration file is not usable
    * `MalformedFrame`: a peer sent something that isn't one of its frames
    * `NoAnswer`: an ask ended without an answer
        * `Declined`, `TimedOut`, `Cancelled`, `Unreachable`, `Superseded`
    * `HubError`: the hub could not do what was asked
    * `TransportError`: a connection failed or was refused
    * `DeliveryError`: a channel did not confirm a message
        * `NotSent`: certain, nothing left; try again
        * `Refused`: certain, and a repeat won't help
        * `Throttled`: certain, and the platform says when to come back
        * `Uncertain`: the platform may have acted on the request
"""

from typing import Any, ClassVar, Literal, TypeAlias

ErrorClass: TypeAlias = Literal["configuration", "daemon", "transport", "runtime", "discovery"]


class UpcallError(Exception):
    """Base of every error that this project raises on purpose.

    Attributes:
        code: stable name for logs, scripts and the wire; messages may be reworded, this not.
        error_class: where it belongs, as on the hub's sockets.
        recover: what to do next, or None.
    """

    code: str = "internal"
    error_class: ClassVar[ErrorClass] = "runtime"

    def __init__(
        self, msg: str, *, code: str | None = None, recover: str | None = None
    ) -> None:
        super().__init__(msg)
        self.msg = msg
        self.recover = recover
        if code is not None:
            self.code = code

    def as_dict(self) -> dict[str, Any]:
        """Return the error as it crosses a process boundary."""
        out: dict[str, Any] = {"class": self.error_class, "code": self.code, "msg": self.msg}
        if self.recover:
            out["recover"] = self.recover
        return out


class UsageError(UpcallError):
    """The caller gave something that cannot be used. The message names it and the fix."""

    code = "usage"


class InvalidAsk(UsageError):
    """An ask is out of bounds; the message names field, limit and length."""

    code = "invalid_ask"


class AmbiguousLabels(UsageError):
    """Two labels that a person could not tell apart; both are named with code points."""

    code = "ambiguous_labels"


class ConfigInvalid(UsageError):
    """The configuration is not usable; the message names key, line and the nearest key."""

    code = "config_invalid"
    error_class = "configuration"


class MalformedFrame(UpcallError):
    """A peer sent something that isn't one of its frames."""

    code = "invalid_frame"
    error_class = "transport"


class NoAnswer(UpcallError):
    """An ask ended without an answer. Silence is neither yes nor no."""

    code = "no_answer"


class Declined(NoAnswer):
    """A person declined to answer."""

    code = "declined"


class TimedOut(NoAnswer):
    """Nobody answered before the deadline, and there was no default."""

    code = "timed_out"


class Cancelled(NoAnswer):
    """The ask was withdrawn."""

    code = "cancelled"


class Unreachable(NoAnswer):
    """The program that asked was gone before it took an answer."""

    code = "unreachable"


class Superseded(NoAnswer):
    """The program replaced its question by another one."""

    code = "superseded"


class HubError(UpcallError):
    """The hub is not there, or could not do what was asked."""

    code = "hub_unavailable"
    error_class = "daemon"


class TransportError(UpcallError):
    """A connection failed, was refused, or was closed by the other side."""

    code = "connection_failed"
    error_class = "transport"


class DeliveryError(UpcallError):
    """A channel did not confirm a message. Raise one of the subclasses."""

    code = "delivery"
    error_class = "transport"


class NotSent(DeliveryError):
    """Nothing left this machine, for certain; trying again is safe."""

    code = "delivery_not_sent"


class Refused(DeliveryError):
    """The platform said no, for good."""

    code = "delivery_refused"


class Throttled(DeliveryError):
    """The platform did nothing yet and asks us to wait.

    Attributes:
        retry_after_s: the pause that it asks for, in seconds.
        place_only: it asks for it in this place alone, not on the whole channel.
    """

    code = "delivery_throttled"

    def __init__(self, retry_after_s: float, *, place_only: bool = False) -> None:
        super().__init__(f"the platform asks for a pause of {retry_after_s:g} s")
        self.retry_after_s = retry_after_s
        self.place_only = place_only


class Uncertain(DeliveryError):
    """The request went out and no answer came back: a repeat may show the message twice."""

    code = "delivery_uncertain"
