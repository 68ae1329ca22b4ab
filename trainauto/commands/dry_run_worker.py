"""The process of a dry run.

    python -m trainauto.commands.dry_run_worker

    {"options": "x4.yml", "overrides": [], "folder": "a folder to be thrown away"}
    {"device": "cpu (2 cores)", "network": "compact x2", ...}      with "by_trainer": true {"pairs": [...], ...}
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
    from trainauto.commands.dry_run import DryRun
    from trainauto.commands.trainer_dry_run import TrainerDryRun
    from trainauto.core.errors import TrainautoError

    built: list[DryRun | TrainerDryRun] = []

    def handle(request: Request) -> dict[str, Any]:
        try:
            if "steps" in request:
                return built[0].train(request["steps"])
            if "read" in request and isinstance(built[0], DryRun):
                return built[0].read()
            kind = TrainerDryRun if request.get("by_trainer") else DryRun
            built[:] = [kind(Path(request["options"]), request["overrides"], Path(request["folder"]))]
            return built[0].built()
        except TrainautoError:
            raise
        except Exception:
            # A plugin's fault, or ours: whoever reads it needs all of it.
            return {"cannot": traceback.format_exc(), "exit_code": 1}

    return handle


if __name__ == "__main__":
    sys.exit(serve(_dry_run_handler))
