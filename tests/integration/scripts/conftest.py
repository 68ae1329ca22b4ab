"""What unit tests of scripts have, too: importable modules of scripts/, and a repository."""

from tests.unit.scripts.conftest import all_checks, repository

__all__ = ["all_checks", "repository"]
