"""What only an acceptance run takes: TRAINAUTO_ACCEPTANCE=1, half an hour instead of a quarter."""

import os

import pytest

ACCEPTANCE = "TRAINAUTO_ACCEPTANCE" in os.environ

only_in_acceptance = pytest.mark.skipif(not ACCEPTANCE, reason="TRAINAUTO_ACCEPTANCE is not set")
