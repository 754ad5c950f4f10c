"""A Ray cluster of this machine as the executor. Slow: Ray takes its time to start."""

import pytest
from fake_bench import FakeBench

from popcorn.cases import Case
from sweep.bench_config import BenchConfig
from sweep.errors import DeviceLost, KernelsNotLoaded
from sweep.variant import Ask, Shape, Target

pytestmark = pytest.mark.slow
TARGET = Target(Shape(4, 1, 1024, 16), Case.from_spec({"seed": 1}))


@pytest.fixture
def cluster(tmp_path):
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    from sweep.ray_cluster import RayExecutor

    made = []

    def start(trouble="none"):
        made.append(RayExecutor(BenchConfig("", f"{tmp_path}|{trouble}", "cpu"), None, make=FakeBench))
        return made[-1]

    yield start
    for executor in made:
        executor.close()


def test_every_ask_is_answered_once(cluster):
    asks = [Ask(TARGET, (None,), 3, str(number)) for number in range(4)]
    executor = cluster()
    assert executor.machine.name == "Simulated GPU X1"
    answers = dict(executor.run(asks))
    assert sorted(answers) == [0, 1, 2, 3]
    assert all(len(outcomes[0].samples_ns) == 3 for outcomes in answers.values())


def test_a_lost_actor_is_replaced_and_its_ask_measured_again(cluster):
    executor = cluster("dies once")
    assert len(dict(executor.run([Ask(TARGET, (None,), 3, "a")]))) == 1


@pytest.mark.parametrize(("trouble", "error"), [("all die", DeviceLost), ("not loaded", KernelsNotLoaded)])
def test_what_cannot_be_measured_ends_the_sweep(cluster, trouble, error):
    with pytest.raises(error):
        list(cluster(trouble).run([Ask(TARGET, (None,), 3, "a")]))
