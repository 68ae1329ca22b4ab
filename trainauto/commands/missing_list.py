"""What ``python -m trainauto list archs --missing`` prints."""

import json
from textwrap import wrap

from trainauto.tasks.sr.archs.foreign_networks import OF_VIDEO, missing_networks

WIDEST = 80
NOTHING = "nothing alike"
"""Shown where no network here is near."""
_COLUMNS = "{:<24}{:<35}{}"


def missing_table() -> str:
    """Return the networks of other projects that are not here, a line each."""
    rows = [
        _COLUMNS.format(name, near or NOTHING, ", ".join(projects))
        for name, (projects, near) in missing_networks().items()
    ]
    videos = f"Networks that take several frames are not here, and none is near: {', '.join(sorted(OF_VIDEO))}."
    return "\n".join([_COLUMNS.format("network", "nearest here", "of"), *rows, "", *wrap(videos, WIDEST)])


def missing_json() -> str:
    """Return the same for machines; of networks of video, too."""
    images = [
        {"name": name, "projects": projects, "nearest": near or None, "video": False}
        for name, (projects, near) in missing_networks().items()
    ]
    return json.dumps([*images, *({"name": name, "video": True} for name in sorted(OF_VIDEO))], indent=2)
