"""One rank that says what it heard from the others: messages of all lengths, and none.

python -m tests.integration.rank_messages OUT
"""

import json
import sys
from pathlib import Path

from trainauto.distributed.communicator import any_of, init_distributed

PAYLOADS = ([b"", b"x" * 10**6, b""], [b"abc", b"", b"d" * 5], [b"", b"", b""])


def main(out: str) -> None:
    with init_distributed("pytorch") as ranks:
        heard = {
            "long": [len(one["text"]) for one in ranks.all_gather_object({"text": "é" * 3000 * ranks.rank})],
            "order": [one["rank"] for one in ranks.all_gather_object({"rank": ranks.rank})],
            "empty": ranks.all_gather_object({}),
            "first": ranks.broadcast_object(lambda: "f" * 5000),
            "gathered": [[len(one) for one in ranks.gather(payloads[ranks.rank])] for payloads in PAYLOADS],
            "any": [any_of(ranks, ranks.rank == 1), any_of(ranks, False)],
        }
    Path(out).write_text(json.dumps(heard))


if __name__ == "__main__":
    main(sys.argv[1])
