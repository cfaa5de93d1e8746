"""Generated files are what the program would write now."""

import pytest

from architecture.generated import FILES, ROOT


@pytest.mark.parametrize("name", FILES)
def test_a_generated_file_is_up_to_date(name: str) -> None:
    wanted = FILES[name]()
    assert (ROOT / name).read_text(encoding="utf-8") == wanted, "run: make generate"
