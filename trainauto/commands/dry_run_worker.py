"""The process of a dry run.

    python -m trainauto.commands.dry_run_worker

    {"options": "x4.yml", "overrides": [], "folder": "a folder to be thrown away"}
    {"device": "cpu (2 cores)", "network": "compact x2", ...}
    {"read": true}
    {"images": 20, "decode_seconds": 0.31, ...}
    {"steps": 1}
    {"steps": [{"losses": {"l1loss": 0.31}, ...}], ...}

Any answer may be ``{"cannot": "...", "exit_code": 2}``. It is a process of its own because a step that does not
fit may end it; :mod:`trainauto.commands.run_validate` asks it.
"""

import sys
import traceback
from pathlib import Path
from typing import Any

from trainauto.core.worker_process import Handler, Request, serve

# Nothing here may import torch at the top: the memory limit that a child inherits must be off by then.


def _dry_run_handler() -> Handler:
    """Return the handler: the first request builds the run, others read its data or train it."""
    from trainauto.core.errors import TrainautoError
    from trainauto.forecast.task import Trial, task_of
    from trainauto.options.load import load_options

    built: list[Trial] = []

    def handle(request: Request) -> dict[str, Any]:
        try:
            if "steps" in request:
                return built[0].train(request["steps"])
            if "read" in request:
                return built[0].read()
            loaded = load_options(Path(request["options"]), request["overrides"])
            built[:] = [task_of(loaded).trial(loaded, Path(request["folder"]))]
            return built[0].built()
        except TrainautoError:
            raise
        except Exception:
            # A plugin's fault, or ours: whoever reads it needs all of it.
            return {"cannot": traceback.format_exc(), "exit_code": 1}

    return handle


if __name__ == "__main__":
    sys.exit(serve(_dry_run_handler))
