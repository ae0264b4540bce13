from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.host.workshop import Workshop


@pytest_asyncio.fixture
async def workshop(tmp_path: Path) -> AsyncIterator[Workshop]:
    made = Workshop(tmp_path)
    yield made
    await made.close()
