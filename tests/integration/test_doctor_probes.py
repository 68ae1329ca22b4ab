"""The process that probes this machine for the doctor."""

from trainauto.commands.doctor_checks.probe_worker import Prober


def test_a_probe_that_ends_its_process_is_told_and_the_next_one_answers() -> None:
    with Prober() as prober:
        dead = prober.ask("import_package", "a_module_that_is_not_there")
        assert "ModuleNotFoundError" in dead["error"]
        assert prober.ask("no_such_probe")["error"].startswith("KeyError")
        assert prober._worker is not None
        prober._worker._process.kill()
        gone = prober.ask("host_name")
        assert "SIGKILL" in gone["error"]
        assert prober.ask("host_name")["host"]
