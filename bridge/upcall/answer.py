"""What a person answered. Light: the standard library's built-ins alone.

The blocking `ask` of scripts uses it, so it is imported without anything that costs time.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn


class AnsweredBy:
    """Who answered, and on which channel; the name is None where nobody knows the person."""

    __slots__ = ("channel", "name")

    name: "str | None"
    channel: str

    def __init__(self, name: "str | None", channel: str) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "channel", channel)

    def __setattr__(self, name: str, value: object) -> "NoReturn":
        raise AttributeError(f"an AnsweredBy does not change: {name}")

    def __delattr__(self, name: str) -> "NoReturn":
        raise AttributeError(f"an AnsweredBy does not change: {name}")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, AnsweredBy):
            return (self.name, self.channel) == (other.name, other.channel)
        return NotImplemented

    def __hash__(self) -> int:
        return hash((self.name, self.channel))

    def __repr__(self) -> str:
        return f"AnsweredBy(name={self.name!r}, channel={self.channel!r})"

    def __str__(self) -> str:
        return f"{self.name or 'somebody'} on {self.channel}"

    def __reduce__(self) -> "tuple[type[AnsweredBy], tuple[str | None, str]]":
        return AnsweredBy, (self.name, self.channel)


class Answer:
    """An answer: compare it (`answer == "Yes"`), or turn it into text.

    It is neither true nor false, since `if ask("Deploy?", ["Yes", "No"]):` would deploy on
    "No"; using it as a condition raises `TypeError`.

    Attributes:
        labels: the options that were chosen, in the order of the ask.
        indices: their places, from 0.
        text: the person's own words, or None.
        answered_by: who answered; None where nobody did.
        outcome: `answered`; `timed_out` if this is the default that the program gave.
        waited_s: from asking to answer, in seconds.
    """

    __slots__ = ("answered_by", "indices", "labels", "outcome", "text", "waited_s")

    labels: "tuple[str, ...]"
    indices: "tuple[int, ...]"
    text: "str | None"
    answered_by: "AnsweredBy | None"
    outcome: str
    waited_s: float

    def __init__(
        self,
        labels: "Sequence[str]" = (),
        indices: "Sequence[int]" = (),
        text: "str | None" = None,
        *,
        answered_by: "AnsweredBy | None" = None,
        outcome: str = "answered",
        waited_s: float = 0.0,
    ) -> None:
        for name, value in (
            ("labels", tuple(labels)),
            ("indices", tuple(indices)),
            ("text", text),
            ("answered_by", answered_by),
            ("outcome", outcome),
            ("waited_s", waited_s),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def from_result(cls, result: "Mapping[str, Any]") -> "Answer":
        """Return the answer in a result document, as the hub and `--json` write it.

        Raises:
            ValueError: the ask ended without an answer.
        """
        given = result.get("answer")
        if given is None:
            raise ValueError(f"an ask that ended as {result.get('outcome')} has no answer")
        by = result.get("answered_by")
        return cls(
            given.get("labels") or (),
            given.get("indices") or (),
            given.get("text"),
            answered_by=None if by is None else AnsweredBy(by.get("name"), by["channel"]),
            outcome=result["outcome"],
            waited_s=float(result.get("waited_s") or 0.0),
        )

    def __setattr__(self, name: str, value: object) -> "NoReturn":
        raise AttributeError(f"an Answer does not change: {name}")

    def __delattr__(self, name: str) -> "NoReturn":
        raise AttributeError(f"an Answer does not change: {name}")

    def __str__(self) -> str:
        parts = self.labels if self.text is None else (*self.labels, self.text)
        return ", ".join(parts)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            parts = self.labels if self.text is None else (*self.labels, self.text)
            return len(parts) == 1 and parts[0] == other
        if isinstance(other, Answer):
            return (self.labels, self.indices, self.text, self.outcome) == (
                other.labels,
                other.indices,
                other.text,
                other.outcome,
            )
        return NotImplemented

    def __hash__(self) -> int:
        # Equal to a text, so it hashes like that text.
        return hash(str(self))

    def __bool__(self) -> bool:
        raise TypeError(
            "an Answer is neither true nor false, because 'No' is an answer too;"
            " compare it: answer == 'Yes'"
        )

    def __repr__(self) -> str:
        return (
            f"Answer(labels={self.labels!r}, indices={self.indices!r}, text={self.text!r},"
            f" answered_by={self.answered_by!r}, outcome={self.outcome!r},"
            f" waited_s={self.waited_s!r})"
        )

    def __copy__(self) -> "Answer":
        return self

    def __deepcopy__(self, memo: object) -> "Answer":
        return self

    def __reduce__(self) -> "tuple[object, ...]":
        return _rebuilt, (
            self.labels,
            self.indices,
            self.text,
            self.answered_by,
            self.outcome,
            self.waited_s,
        )


def _rebuilt(
    labels: "tuple[str, ...]",
    indices: "tuple[int, ...]",
    text: "str | None",
    answered_by: "AnsweredBy | None",
    outcome: str,
    waited_s: float,
) -> Answer:
    return Answer(
        labels, indices, text, answered_by=answered_by, outcome=outcome, waited_s=waited_s
    )
