"""What a rule said of a script, compared with what a real bash did with it: scripts from fixed seeds, in a box."""

from collections.abc import Iterator
from random import Random

import pytest

from tests.calls.authorise.scripts import CLASSES, HARMLESS, USUAL, WRITING
from tests.calls.authorise.shell_box import ShellBox
from tests.calls.authorise.shell_spellings import COMMANDS, WRITES, allowed, command_script, write_script

pytestmark = pytest.mark.xdist_group("shell_box")


@pytest.fixture(scope="module")
def box() -> Iterator[ShellBox]:
    with ShellBox() as box:
        yield box


def test_the_box_sees_what_a_script_runs_and_writes_and_lets_it_reach_nothing_else(box):
    assert box.run("rm x").ran
    assert box.run("bash -c '/bin/rm x' &").ran
    assert not box.run("echo rm x").ran
    assert box.run("cd /etc; echo x > t; chmod 600 passwd").changed == ("/etc/passwd", "/etc/t")
    assert box.run("ls; cat /etc/passwd").changed == ()
    # Neither the programs of the box nor anything beside it can be written.
    assert not box.run("echo x > /bin/rm; echo x > /t; cp f /bin/ls; test -e /t && rm x").ran
    assert not box.run("for f in /root /home /usr /proc /sys; do test -e $f && rm x; done").ran
    assert not box.run("echo x > /dev/tcp/127.0.0.1/22 && rm x").ran


@pytest.mark.promise("AUTH-05")
@pytest.mark.parametrize("seed", range(3))
def test_no_script_runs_a_command_that_a_rule_did_not_see(box, seed):
    """Scripts that are allowed must not run it, and some of the refused ones must, or it would be no test."""
    random, ran = Random(seed), 0
    for number in range(250):
        script = command_script(random)
        passes = allowed(script, COMMANDS)
        if not passes and number % 25:
            continue
        seen = box.run(script)
        assert not (passes and seen.ran), script
        ran += seen.ran
    assert ran


@pytest.mark.promise("AUTH-05")
@pytest.mark.parametrize("seed", range(3))
def test_no_script_writes_a_file_that_a_rule_did_not_see(box, seed):
    random, wrote = Random(seed), 0
    for number in range(250):
        script = write_script(random)
        passes = allowed(script, WRITES)
        if not passes and number % 25:
            continue
        seen = box.run(script)
        assert not (passes and seen.changed), (script, seen.changed)
        wrote += bool(seen.changed)
    assert wrote


@pytest.mark.promise("AUTH-05")
def test_the_scripts_that_pass_for_harmless_are(box):
    for script in (*HARMLESS[::3], *USUAL[::5]):
        seen = box.run(script)
        assert not seen.ran, script
        assert not seen.changed, (script, seen.changed)


@pytest.mark.parametrize("way", ["option bundles", "quoted defaults", "sed"])
def test_the_ways_to_run_a_command_are_real(box, way):
    """A table of ways that no shell knows would prove nothing."""
    assert sum(box.run(script).ran for script in CLASSES[way]) > len(CLASSES[way]) // 4


@pytest.mark.parametrize("way", ["tar", "find", "redirections"])
def test_the_ways_to_write_a_file_are_real(box, way):
    assert sum(bool(box.run(script).changed) for script in WRITING[way]) > len(WRITING[way]) // 4
