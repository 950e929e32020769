"""The checks around every test, tried on small suites in a pytest of their own."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.conftest import PATIENCE
from tests.support import fail_after

pytest_plugins = "pytester"

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Run a suite under this project's own settings and conftest, in another process: it leaks on purpose."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(suite: str, *, patience: float = 0.2) -> pytest.RunResult:
        pytester.makepyfile(suite)
        pytester.makeconftest(f"import tests.conftest; tests.conftest.PATIENCE = {patience}")
        settings = ("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(pytester.path))
        # Plugins that are slow to start are left out.
        plugins = ("-p", "tests.conftest", "-p", "no:hypothesispytest", "-p", "no:schemathesis")
        return pytester.runpytest_subprocess(*settings, *plugins, str(pytester.path))

    return run


def test_a_leaked_task_fails_the_test_that_leaked_it(run):
    result = run("""
        import asyncio

        async def test_leaks():
            global kept
            kept = asyncio.create_task(asyncio.Event().wait(), name="left-behind")

        async def test_after():
            pass
    """)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_leaks*", "*task*left-behind*"])


def test_a_leaked_thread_fails_the_test_that_leaked_it(run):
    result = run("""
        import threading

        def test_leaks():
            threading.Thread(target=threading.Event().wait, name="left-behind", daemon=True).start()

        def test_after():
            pass
    """)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_leaks*", "*thread 'left-behind' at *"])


def test_a_leaked_child_process_fails_the_test_that_leaked_it_and_is_killed(run):
    result = run("""
        import subprocess, sys

        def test_leaks():
            global kept
            kept = subprocess.Popen([sys.executable, "-c", "input()", "left-behind"], stdin=subprocess.PIPE)

        def test_after():
            assert kept.wait(60) is not None
            kept.stdin.close()
    """)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_leaks*", "*child process *left-behind*"])


def test_a_child_process_that_nobody_waited_for_fails_the_test(run):
    result = run("""
        import os

        def test_leaks():
            if os.fork() == 0:
                os._exit(0)
    """)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*child process * (ended, not waited for)"])


def test_a_leak_beside_a_failing_teardown_is_told_with_the_failure(run):
    result = run("""
        import threading
        import pytest

        @pytest.fixture
        def broken():
            yield
            raise OSError("teardown broke")

        def test_leaks(broken):
            threading.Thread(target=threading.Event().wait, name="left-behind", daemon=True).start()
    """)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*OSError: teardown broke", "*thread 'left-behind' at *"])


def test_what_a_test_or_its_fixtures_close_is_not_a_leak(run):
    result = run(
        """
        import asyncio, multiprocessing, sys, threading, time
        import pytest

        @pytest.fixture(scope="module")
        def shared():
            stop = threading.Event()
            thread = threading.Thread(target=stop.wait)
            thread.start()
            yield
            stop.set()
            thread.join()

        async def serve():
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(3):
                    await asyncio.sleep(0)

        @pytest.fixture
        async def service():
            task = asyncio.create_task(serve())
            yield
            task.cancel()

        async def test_task(shared, service):
            pass

        async def test_executor(shared):
            await asyncio.to_thread(threading.get_ident)

        async def test_child(shared):
            child = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
            assert await child.wait() == 0

        def test_interpreter_helpers(shared):
            context = multiprocessing.get_context("spawn")
            process = context.Process(target=print)
            process.start()
            process.join()
            assert process.exitcode == 0
            process.close()

        def test_on_their_way_out(shared):
            threading.Timer(0.1, int).start()
            multiprocessing.get_context("spawn").Process(target=time.sleep, args=(0.2,)).start()
    """,
        patience=PATIENCE,
    )
    result.assert_outcomes(passed=5)


def test_a_marker_that_names_no_promise_stops_the_run(run):
    result = run("""
        import pytest

        @pytest.mark.promise("RUN-01", "NONE-99")
        def test_wrong():
            pass

        @pytest.mark.promise
        def test_empty():
            pass
    """)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "*test_wrong: no promise 'NONE-99' in docs/promises.md",
            "*test_empty: `promise` takes one or more ids*",
        ]
    )
    result.stdout.no_fnmatch_line("*passed*")


def test_a_marker_may_name_several_promises(run):
    run("""
        import pytest

        pytestmark = pytest.mark.promise("RUN-01")

        @pytest.mark.promise("RUN-02", "RUN-03")
        def test_right():
            pass
    """).assert_outcomes(passed=1)


async def test_fail_after_fails_a_wait_that_takes_too_long():
    with pytest.raises(pytest.fail.Exception, match=r"Still waiting after 0\.01 s"):
        async with fail_after(0.01):
            await asyncio.Event().wait()


async def test_fail_after_passes_on_a_timeout_of_the_code_it_bounds():
    with pytest.raises(TimeoutError, match="theirs"):
        async with fail_after(5):
            raise TimeoutError("theirs")


def test_a_stalled_loop_fails_the_test_that_watches_it_and_no_other(run):
    result = run("""
        import asyncio, time

        def compute(seconds):
            until = time.thread_time() + seconds
            while time.thread_time() < until:
                pass

        async def test_stalls(loop_watch):
            compute(0.2)

        async def test_is_quick(loop_watch):
            await asyncio.sleep(0)

        async def test_does_not_watch():
            compute(0.2)
    """)
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_stalls*", "*The event loop did not turn for 0.*"])


def test_programs_of_the_tests_can_be_interrupted_also_where_the_suite_itself_can_not(run):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        result = run("""
            import signal, subprocess, sys

            def test_interrupts():
                sleeper = "import signal; print(flush=True); signal.pause()"
                with subprocess.Popen([sys.executable, "-c", sleeper], stdout=-1, stderr=subprocess.DEVNULL) as child:
                    child.stdout.readline()
                    child.send_signal(signal.SIGINT)
                    assert child.wait(10) == -signal.SIGINT
        """)
    finally:
        signal.signal(signal.SIGINT, before)
    result.assert_outcomes(passed=1)
