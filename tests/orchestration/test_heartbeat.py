import signal
import subprocess
import sys
from dataclasses import replace

import dagster as dg
import psutil
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError

from consumers.clock import ManualClock
from orchestration import heartbeat
from orchestration.heartbeat import Pulse
from tests.orchestration.stored import on_disk  # noqa: F401 - it is the fixture `instance`

NOW = 1_700_000_000.0


def started(instance: dg.DagsterInstance, status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTED) -> str:
    @dg.job
    def job() -> None: ...

    return instance.create_run_for_job(job, status=status).run_id


def test_a_run_beats_as_long_as_it_gets_on_and_is_forgotten_at_its_end(instance: dg.DagsterInstance) -> None:
    clock, run = ManualClock(NOW), started(instance)
    with Pulse(instance, run, clock) as pulse:
        assert heartbeat.beats(instance, [run])[run].at == NOW
        clock.advance(20)
        pulse.beat()
        assert heartbeat.beats(instance, [run])[run].at == NOW, "it did not get on"
        pulse.progress()
        pulse.beat()
        assert heartbeat.beats(instance, [run])[run].at == NOW + 20
        clock.advance(heartbeat.BEAT_SECONDS - 1)
        pulse.progress()
        pulse.beat()
        assert heartbeat.beats(instance, [run])[run].at == NOW + 20, "nobody needs it more often"
    assert heartbeat.beats(instance, [run]) == {}


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.FAILURE])
def test_a_run_that_nobody_can_reach_sees_by_itself_that_it_is_to_end(
    instance: dg.DagsterInstance, status: dg.DagsterRunStatus
) -> None:
    with pytest.raises(DagsterExecutionInterruptedError, match=status.value):
        Pulse(instance, started(instance, status), ManualClock()).beat()


def test_a_run_that_is_told_to_leave_hears_it_within_seconds(instance: dg.DagsterInstance) -> None:
    clock, run = ManualClock(), started(instance)
    with Pulse(instance, run, clock) as pulse:
        assert pulse.beat() == ""
        heartbeat.tell_to_leave(instance, run, "2 are enough")
        assert heartbeat.told_to_leave(instance, [run, "other"]) == {run: "2 are enough"}
        clock.advance(heartbeat.LOOK_SECONDS)
        assert pulse.beat() == "2 are enough"
    assert heartbeat.told_to_leave(instance, [run]) == {}


def test_only_the_very_process_of_a_beat_is_killed() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        process = psutil.Process(child.pid)
        process.suspend()
        beat = replace(heartbeat.own_beat(NOW), pid=child.pid, started=process.create_time())
        assert not heartbeat.kill(replace(beat, host="elsewhere"))
        assert not heartbeat.kill(replace(beat, started=beat.started - 60))
        assert child.poll() is None
        assert heartbeat.kill(beat)
        assert child.wait(30) == -signal.SIGKILL
        assert not heartbeat.kill(beat)
    finally:
        child.kill()
        child.wait(30)


def test_a_run_whose_records_wait_longer_for_each_other_is_given_more_time() -> None:
    assert [heartbeat.dead_after(seconds) for seconds in (1, 10, 60)] == [75, 75, 120]
