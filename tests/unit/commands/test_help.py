"""What commands say of themselves, to somebody who has read nothing else."""

import pytest

from trainauto.cli import main


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            "plan",
            [
                "in 10 to 20 seconds",
                "--measure also trains a few steps on noise",
                "by how much the prediction was off",
                "python -m trainauto plan -opt x.yml --measure",
            ],
        ),
        (
            "upscale",
            [
                "in the largest tiles that are predicted to fit",
                "by how many pixels they overlap",
                "the peak of memory, as predicted before it ran, as measured",
                "python -m trainauto upscale experiments/my_first photos/ large/",
            ],
        ),
    ],
)
def test_help_says_what_is_done_and_printed(
    command: str, told: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    words = " ".join(printed.split())
    for one in ("what is printed:", "examples:", *told):
        assert one in words
