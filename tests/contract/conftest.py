"""Every contract test that asks for a `backend` runs once for each of `harness.BACKENDS`."""

import pytest

from tests.contract.harness import BACKENDS


@pytest.fixture(params=BACKENDS)
def backend(request) -> str:
    return request.param
