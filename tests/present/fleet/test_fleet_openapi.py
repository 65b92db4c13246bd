"""Every endpoint of the fleet page does what its OpenAPI document says, whatever it is asked."""

from pathlib import Path

import pytest
from tests.present.web.wire import run_generated


@pytest.mark.slow
def test_what_the_document_says() -> None:
    run_generated(Path(__file__).with_name("openapi_cases.py"))
