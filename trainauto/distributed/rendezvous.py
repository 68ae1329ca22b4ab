"""How the ranks of one start find each other, where torchrun has started them."""

import json
import os
import socket
import time
from datetime import timedelta
from uuid import uuid4

from torch.distributed import DistNetworkError, TCPStore  # type: ignore[attr-defined]

from trainauto.core.errors import TrainautoError

BOARD_S = 60
"""How long torchrun's store is tried for: it is there before any rank is started."""

_POLL_S = 0.02


def launch_of_now() -> str:
    """Return what tells this launch from others: the same in every start of it by torchrun, empty without."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return ""
    return f"{os.environ['TORCHELASTIC_RUN_ID']} {socket.gethostname()} {os.getppid()}"


def fresh_store(rank: int, world_size: int, timeout: timedelta) -> TCPStore | None:
    """Return a store that only the processes of this start write to; ``None`` where there is no other anyway.

    torchrun keeps one store over restarts. What the ranks of the last start have left in it leads those of this one to
    sockets that are closed (pytorch/pytorch issue 135712), and its count of restarts differs between machines. So the
    first rank opens a store of its own, and publishes its address under a name that was never used before.

    Raises:
        TrainautoError: torchrun's store is not where torchrun says.
        RuntimeError: the others have not come in time.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    board = _board(host, port, timeout)
    if rank > 0:
        name = uuid4().hex
        board.set(f"trainauto/ask/{rank}", name)
        answer = json.loads(board.get(f"trainauto/answer/{name}"))
        store = TCPStore(answer["host"], answer["port"], world_size, is_master=False, timeout=timeout)
        store.add("here", 1)
        return store
    mine = _own_host(host, port)
    store = TCPStore(mine, 0, world_size, is_master=True, wait_for_workers=False, timeout=timeout)
    answered: dict[str, bytes] = {}
    deadline = time.monotonic() + timeout.total_seconds()
    while store.add("here", 0) < world_size - 1:
        if time.monotonic() > deadline:
            raise RuntimeError(f"only {1 + store.add('here', 0)} of {world_size} ranks have come")
        for question in (f"trainauto/ask/{other}" for other in range(1, world_size)):
            # A name that a lost rank has left is answered as well: nobody waits for that.
            if board.check([question]) and (name_asked := board.get(question)) != answered.get(question):
                board.set(f"trainauto/answer/{name_asked.decode()}", json.dumps({"host": mine, "port": store.port}))
                answered[question] = name_asked
        time.sleep(_POLL_S)
    return store


def _board(host: str, port: int, timeout: timedelta) -> TCPStore:
    """Return torchrun's store.

    Where the machine that had it is lost, torchrun on the others still names it (pytorch/pytorch pull request
    167302): a rank that waited there would wait in vain.
    """
    try:
        board = TCPStore(host, port, None, is_master=False, timeout=timedelta(seconds=BOARD_S))
    except DistNetworkError as error:
        raise TrainautoError(
            f"the store of torchrun does not answer at {host}:{port} ({str(error).splitlines()[0]})\n"
            "  If the machine that had it was lost, start torchrun again on all of them. With "
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in the environment of torchrun it need not be."
        ) from None
    board.set_timeout(timeout)
    return board


def _own_host(host: str, port: int) -> str:
    """Return how others reach this machine: the name of the board where that is here, else the way to it.

    The board stays where the first rank once was, and torchrun may have given its number to another machine since.
    """
    with socket.create_connection((host, port), BOARD_S) as way:
        mine, theirs = way.getsockname()[0], way.getpeername()[0]
    is_here = mine == theirs or theirs.startswith("127.")
    return host if is_here else str(mine)
