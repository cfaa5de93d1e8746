"""Rows of the result, and the table in docs/performance.md."""

import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BEGIN = "<!-- bench:begin -->"
END = "<!-- bench:end -->"
DOCS = Path(__file__).resolve().parent.parent / "docs" / "performance.md"


@dataclass(frozen=True)
class Row:
    """One measurement: ours, the floor it stands beside, and the goal, at most `goal`
    (or at least, for `at_least`)."""

    goal_id: str
    what: str
    ours: str
    floor: str
    value: float
    goal: float | None
    unit: str = "x"
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.value >= self.goal if self.at_least else self.value <= self.goal

    def cells(self) -> list[str]:
        sign = ">=" if self.at_least else "<="
        goal = "-" if self.goal is None else f"{sign} {self.goal:g} {self.unit}"
        verdict = {True: "met", False: "**missed**", None: "-"}[self.met]
        number = f"{self.value:.3g}" if abs(self.value) < 1000 else f"{self.value:,.0f}"
        return [
            self.goal_id,
            self.what,
            self.ours,
            self.floor,
            f"{number} {self.unit}",
            goal,
            verdict,
        ]


def median_ratio(ratios: Sequence[float]) -> float:
    """Return the median of ratios that were taken side by side, round by round."""
    return statistics.median(ratios)


def markdown(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    heads = ["goal", "work", "ours", "beside it", "result", "wanted", ""]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(row.cells()) + " |" for row in rows]
    return "\n".join(lines)


def write(rows: Sequence[Row], when: str) -> None:
    """Put the table between the markers of docs/performance.md."""
    text = DOCS.read_text() if DOCS.exists() else f"# Performance\n\n{BEGIN}\n{END}\n"
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    where = f"Measured {when} by `make bench`, Python {platform.python_version()}, "
    where += f"{platform.system()} {platform.machine()}, two shared cores."
    DOCS.write_text(f"{head}{BEGIN}\n{where}\n\n{markdown(rows)}\n{END}{tail}")
