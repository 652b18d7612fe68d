"""What several test files share: real parameter shapes, gradients of realistic spread, runs of the workflow."""

import shutil

import backends  # noqa: F401 - before anything imports Triton
import pytest
import torch
from filelock import FileLock
from hypothesis import HealthCheck, settings
from processor import avoid_broken_amx
from projects import TEST, Project

from qlocaladam.data import sources
from qlocaladam.data.dataset import load, subset
from qlocaladam.federated.partition import partition
from qlocaladam.models import ResNet18

# Machines are noisy: no example has a deadline. The same examples everywhere, so that a failure can be repeated.
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

avoid_broken_amx()
torch.set_num_threads(1)  # one test process a core: see the Makefile


def pytest_collection_modifyitems(items):
    """Tests that mostly wait come first, so that the other test processes have something to do meanwhile; then those of
    the workflow, which take longest, so that what is left for the end is short."""

    def waits(item):
        return item.path.name == "test_slurm.py" or item.name == "test_a_federation_outlives_the_death_of_a_node"

    items.sort(key=lambda item: (not waits(item), "workflow" not in item.path.parts))


@pytest.fixture(scope="session")
def resnet_shapes():
    """The shapes of a narrow ResNet-18, and the awkward ones: a scalar, an empty tensor, one value, one too many."""
    with torch.device("meta"):
        model = ResNet18(classes=10, width=4)
    return [tuple(p.shape) for p in model.parameters()] + [(), (0,), (1,), (65,)]


@pytest.fixture
def gradients(resnet_shapes):
    """An endless source of gradients whose magnitudes spread over eight orders, as client gradients do."""

    def draw(seed, shapes=resnet_shapes):
        rng = torch.Generator().manual_seed(seed)
        while True:
            yield [torch.randn(s, generator=rng) * 10 ** (torch.rand(s, generator=rng) * 8 - 8) for s in shapes]

    return draw


def prepared(name):
    """A file of a data set that needs no download."""

    @pytest.fixture(scope="session", name=name)
    def file(tmp_path_factory):
        path = tmp_path_factory.mktemp("data") / f"{name}.npz"
        sources.prepare(name, path)
        return path

    return file


digits, text = prepared("digits"), prepared("text")


@pytest.fixture(scope="session")
def dealt_digits(digits):
    """That file, 150 and 20 of its images, and the file of their partition."""
    data, dealt = subset(load(digits), 150, 20), digits.with_name("partition.npz")
    partition(data.y_train, 10, 0.1, 42).save(dealt)
    return digits, data, dealt


@pytest.fixture(scope="session")
def once(tmp_path_factory, worker_id):
    """What all test processes look at, and nobody changes: a path that the first who asks fills, and what that says."""
    base = tmp_path_factory.getbasetemp()

    def made(name, fill):
        path = (base if worker_id == "master" else base.parent) / name
        with FileLock(f"{path}.lock"):
            said = path.with_suffix(".said")
            if not said.exists():
                said.write_text(fill(path))
            return path, said.read_text()

    return made


@pytest.fixture(scope="session")
def finished(once):
    """The whole DAG at the test scale, really run."""
    folder, said = once("finished", lambda folder: Project.fresh(folder).snakemake(*TEST))
    project = Project(folder)
    project.said = said
    return project


@pytest.fixture
def project(tmp_path):
    """A fresh copy of the project."""
    return Project.fresh(tmp_path / "project")


@pytest.fixture
def copy(finished, tmp_path):
    """Finished results that a test may change."""
    shutil.copytree(finished.folder, tmp_path / "copy", symlinks=True)
    return Project(tmp_path / "copy")
