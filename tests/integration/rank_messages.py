"""One rank that says what it heard from the others: messages of all lengths, none, and why there is no resume.

python -m tests.integration.rank_messages OUT
"""

import json
import sys
from pathlib import Path

from trainauto.builders.distributed_setup import earlier_run
from trainauto.core.errors import InputError
from trainauto.distributed.communicator import Communicator, any_of, init_distributed
from trainauto.options.run_options import RunSettings
from trainauto.options.tracker_options import TrackerOptions
from trainauto.storage.run_lock import RunLock

PAYLOADS = ([b"", b"x" * 10**6, b""], [b"abc", b"", b"d" * 5], [b"", b"", b""])


def why_no_resume(ranks: Communicator) -> str:
    settings = RunSettings(Path(), ("path", "root"), "unreadable", 1, 1, 1, False, TrackerOptions(), None)
    try:
        earlier_run(settings, ranks, RunLock(), auto_resume=True, restarted=False)
    except InputError as error:
        return str(error)
    return ""


def main(out: str) -> None:
    with init_distributed("pytorch") as ranks:
        heard = {
            "long": [len(one["text"]) for one in ranks.all_gather_object({"text": "é" * 3000 * ranks.rank})],
            "order": [one["rank"] for one in ranks.all_gather_object({"rank": ranks.rank})],
            "empty": ranks.all_gather_object({}),
            "first": ranks.broadcast_object(lambda: "f" * 5000),
            "gathered": [[len(one) for one in ranks.gather(payloads[ranks.rank])] for payloads in PAYLOADS],
            "any": [any_of(ranks, ranks.rank == 1), any_of(ranks, False)],
            "resume": why_no_resume(ranks),
        }
    Path(out).write_text(json.dumps(heard))


if __name__ == "__main__":
    main(sys.argv[1])
