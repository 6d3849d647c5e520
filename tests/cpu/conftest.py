"""These tests build many small libraries: once, for all of them, and without the optimisations that take most of the time.
KVGEN_TEST_FULL=1 builds them as users get them, and so do tests elsewhere."""

import os

import pytest


@pytest.fixture(scope="package", autouse=True)
def quick_builds():
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("KVGEN_TEST_FULL", "") in ("", "0"):
            patch.setenv("KVGEN_CXXFLAGS", "-O1")
        yield
