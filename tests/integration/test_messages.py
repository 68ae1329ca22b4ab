"""What ranks tell each other arrives whole, in order, and where it is meant to (C43)."""

import json
from pathlib import Path

from tests.integration.rank_messages import PAYLOADS
from tests.integration.ranks import finish, start


def test_messages_of_any_length_arrive(tmp_path: Path) -> None:
    """So does an error of the system on the first rank alone, that of a name too long for a folder."""
    (tmp_path / "unreadable").mkdir()
    (tmp_path / "unreadable" / "current").symlink_to("n" * 300)
    done = finish(start(["-m", "tests.integration.rank_messages", "heard_{rank}.json"], 3, tmp_path))
    assert [code for code, _ in done] == [0, 0, 0], done
    for rank in range(3):
        heard = json.loads((tmp_path / f"heard_{rank}.json").read_text())
        assert heard["long"] == [0, 3000, 6000]
        assert heard["order"] == [0, 1, 2]
        assert heard["empty"] == [{}, {}, {}]
        assert heard["first"] == "f" * 5000
        assert heard["any"] == [True, False]
        assert ("File name too long" if rank == 0 else "rank 0 says why") in heard["resume"]
        expected = [[len(one) for one in payloads] for payloads in PAYLOADS] if rank == 0 else [[], [], []]
        assert heard["gathered"] == expected
