"""What every format promises, on one little model: the same roles and numbers, slices, budgets, caches, remote files, bad files.

A format joins by a file make_*.py in tests/support/contract that names its makers.
"""

import importlib
import pkgutil
import shutil

import numpy as np
import pytest

from kinprint.errors import BudgetExceeded, KinprintError
from kinprint.formats.plan import rows
from kinprint.model.model import open_model
from kinprint.studies.origin.windows import windows
from support import contract
from support.contract import little_model as model
from support.hub import HubServer

REPO = "owner/Little"
FILES = sorted(found.name for found in pkgutil.iter_modules(contract.__path__) if found.name.startswith("make_"))
MAKERS = {
    name: maker for file in FILES for name, maker in importlib.import_module(f"support.contract.{file}").MAKERS.items()
}
every_format = pytest.mark.parametrize("name", MAKERS)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Write the little model in a format, once."""
    made = {}

    def write(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("contract")
            MAKERS[name].write(folder, model.little_model(), dict(model.CONFIG))
            made[name] = folder
        return made[name]

    return write


def named(opened):
    return {(part.role.value, part.layer): part for part in opened.naming.tensors}


def read_role(opened, part, wanted=None):
    return opened.tensor(*part.key, rows=wanted)


@every_format
def test_same_roles_and_numbers(name, written, session_for):
    session = session_for()
    plain, opened = open_model(str(written("safetensors F32")), session), open_model(str(written(name)), session)
    expected = {key: part for key, part in named(plain).items() if key[0] not in MAKERS[name].without}
    found = named(opened)
    assert found.keys() == expected.keys()
    assert opened.naming.unmapped == ()
    assert opened.naming.layers == model.LAYERS
    for key, part in expected.items():
        want, got = read_role(plain, part), read_role(opened, found[key])
        assert got.shape == want.shape, key
        allowed = MAKERS[name].error * (np.abs(want).max(axis=-1, keepdims=True) if want.ndim == 2 else 0.0)
        assert np.all(np.abs(got - want) <= allowed), (key, float(np.abs(got - want).max()))


@every_format
def test_rows_are_rows_of_the_whole(name, written, session_for):
    opened = open_model(str(written(name)), session_for())
    for part in opened.naming.tensors:
        if len(part.shape) != 2 or part.layer not in (None, 1):
            continue
        whole = read_role(opened, part)
        for wanted in ((0, 1), (7, 12), (part.shape[0] - 3, part.shape[0])):
            assert np.array_equal(read_role(opened, part, wanted), whole[wanted[0] : wanted[1]]), (part.name, wanted)


@every_format
def test_some_rows_cost_some_bytes(name, written, session_for):
    if not MAKERS[name].rows_alone:
        pytest.skip("the format has no rows that can be read alone")
    session = session_for()
    opened = open_model(str(written(name)), session)
    part = named(opened)["mlp_up", 1]
    before = session.bytes_delivered
    read_role(opened, part, (64, 96))
    assert 0 < session.bytes_delivered - before <= opened.checkpoint.tensors[part.name].nbytes / 4


@every_format
def test_windows(name, written, session_for):
    opened = open_model(str(written(name)), session_for())
    part = named(opened)["mlp_gate", 0]
    tensor = opened.checkpoint.tensors[part.name]
    item = windows(tensor, key="contract", count=3, length=1000)
    got = opened.checkpoint.read([item])[0]
    everything = opened.checkpoint.read([rows(tensor, [(0, tensor.shape[0])])])[0].reshape(-1)
    assert np.array_equal(got, np.concatenate([everything[start:stop] for start, stop in item.runs]))


@every_format
def test_a_hub_repository_and_its_cache(name, written, session_for, tmp_path):
    with HubServer() as server:
        server.add_repo(REPO, written(name))
        first = session_for(server, range_cache=tmp_path / "cache")
        local = open_model(str(written(name)), session_for())
        remote = open_model(REPO, first)
        key = ("input_norm", 1)
        assert np.array_equal(read_role(remote, named(remote)[key]), read_role(local, named(local)[key]))
        size = sum(file.size for file in remote.checkpoint.files)
        assert first.traffic.network_bytes < size
        server.reset()
        second = session_for(server, range_cache=tmp_path / "cache")
        again = open_model(REPO, second)
        assert np.array_equal(read_role(again, named(again)[key]), read_role(local, named(local)[key]))
        assert not [request for request in server.requests if request.range and request.body_bytes > 0]


@every_format
def test_one_file_by_its_path(name, written, session_for):
    opened = open_model(str(written(name) / MAKERS[name].main), session_for())
    assert len(opened.checkpoint.tensors) > 0


@every_format
def test_the_budget_holds(name, written, session_for):
    session = session_for(budget_bytes=40)
    with pytest.raises(BudgetExceeded):
        open_model(str(written(name)), session)
    assert session.bytes_delivered <= 40


@every_format
def test_truncated_files_are_refused_or_read_short(name, written, session_for, tmp_path):
    source = written(name) / MAKERS[name].main
    size = source.stat().st_size
    refused = 0
    for length in sorted({0, 1, 3, 7, 8, 20, 100, 1000, size // 3, size // 2, size - 1000, size - 1}):
        folder = tmp_path / str(length)
        shutil.copytree(written(name), folder)
        (folder / MAKERS[name].main).write_bytes(source.read_bytes()[:length])
        try:
            opened = open_model(str(folder), session_for())
            for part in opened.naming.tensors:
                read_role(opened, part)
        except KinprintError:
            refused += 1
    assert refused == 12
