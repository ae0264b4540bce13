from pathlib import Path

import pytest

from tests.tools.workplace import Workplace


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)
