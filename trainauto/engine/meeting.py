"""How the ranks of one start find each other, where torchrun has started them."""

import os
import time
from datetime import timedelta
from uuid import uuid4

from torch.distributed import TCPStore  # type: ignore[attr-defined]

_POLL_S = 0.02


def fresh_store(rank: int, count: int, timeout: timedelta) -> TCPStore | None:
    """Return a store that only the processes of this start write to; ``None`` where there is no other anyway.

    torchrun keeps one store over restarts. What the ranks of the last start have left in it leads those of this one to
    sockets that are closed (pytorch/pytorch issue 135712), and its count of restarts differs between machines. So the
    first rank opens a store of its own, and tells its port to whoever asks under a name that nobody had before.

    Raises:
        RuntimeError: the others have not come in time.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    host = os.environ["MASTER_ADDR"]
    board = TCPStore(host, int(os.environ["MASTER_PORT"]), None, is_master=False, timeout=timeout)
    if rank > 0:
        name = uuid4().hex
        board.set(f"trainauto/ask/{rank}", name)
        port = int(board.get(f"trainauto/answer/{name}"))
        store = TCPStore(host, port, count, is_master=False, timeout=timeout)
        store.add("here", 1)
        return store
    store = TCPStore(host, 0, count, is_master=True, wait_for_workers=False, timeout=timeout)
    answered: dict[str, bytes] = {}
    deadline = time.monotonic() + timeout.total_seconds()
    while store.add("here", 0) < count - 1:
        if time.monotonic() > deadline:
            raise RuntimeError(f"only {1 + store.add('here', 0)} of {count} ranks have come")
        for question in (f"trainauto/ask/{other}" for other in range(1, count)):
            # A name that a lost rank has left is answered as well: nobody waits for that.
            if board.check([question]) and (name_asked := board.get(question)) != answered.get(question):
                board.set(f"trainauto/answer/{name_asked.decode()}", str(store.port))
                answered[question] = name_asked
        time.sleep(_POLL_S)
    return store
