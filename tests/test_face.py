"""The public face: which names there are, what importing them costs, and the old names for one release."""

import json
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import onlooker
from onlooker.core.density import standard_normal
from onlooker.data.optimizer import Optimizer

PACKAGE = Path(onlooker.__file__).parent


def loaded_after(code: str) -> list[str]:
    """The modules that a fresh interpreter has loaded after running some code."""
    ask = "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code + ask], capture_output=True, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def test_every_public_name_is_found_listed_and_no_name_of_a_room_or_module():
    for name in onlooker.__all__:
        assert getattr(onlooker, name) is not None
        assert name in dir(onlooker)
    inside = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert not inside & set(onlooker.__all__)


def test_the_package_root_holds_at_most_six_files():
    assert len(list(PACKAGE.glob("*.py"))) <= 6


@pytest.mark.parametrize(
    ("namespace", "name", "home"),
    [
        ("density", "standard_normal", "core.density"),
        ("distances", "wasserstein", "core.distances"),
        ("memory", "ring", "fit.memory"),
        ("policies", "spherical", "core.policies"),
        ("projection", "principal_components", "data.projection"),
    ],
)
def test_a_namespace_can_be_imported_and_holds_what_its_home_holds(namespace, name, home):
    short, module = import_module(f"onlooker.{namespace}"), import_module(f"onlooker.{home}")
    assert short is getattr(onlooker, namespace)
    assert getattr(short, name) is getattr(module, name)
    assert name in dir(short)
    with pytest.raises(AttributeError, match="no attribute"):
        _ = short.nothing


def test_the_simulation_lists_its_names_and_finds_them():
    world = onlooker.simulation
    assert set(world.__all__) == set(world._HOME)
    assert all(callable(getattr(world, name)) and name in dir(world) for name in world.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = world.nothing


def test_old_names_work_and_say_where_the_new_ones_are():
    with pytest.warns(DeprecationWarning, match=r"onlooker\.standard_normal is now onlooker\.density\.standard_normal"):
        assert onlooker.standard_normal is standard_normal
    with pytest.warns(DeprecationWarning, match=r"onlooker\.Optimiser is now onlooker\.Optimizer"):
        assert onlooker.Optimiser is Optimizer
    for name in {*onlooker._MOVED, *onlooker._RENAMED}:
        with pytest.warns(DeprecationWarning, match="goes away"):
            assert getattr(onlooker, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = onlooker.nothing


@pytest.mark.parametrize("name", sorted(onlooker._OLD_MODULES.keys() - {"observe.record.sb3"}))
def test_old_modules_work_and_say_where_the_new_ones_are(name):
    home = import_module(f"onlooker.{onlooker._OLD_MODULES[name]}")
    old = import_module(f"onlooker.{name}")
    with pytest.warns(DeprecationWarning, match=rf"onlooker\.{name} is now {home.__name__}"):
        assert old.__all__ == home.__all__


def test_an_argument_is_accepted_under_its_old_name():
    path = np.linspace(0.0, 1.0, 5)[:, None] ** 2
    rule = Optimizer("sgd", momentum=0.5)
    with pytest.warns(DeprecationWarning, match="observe's argument optimiser is now called optimizer"):
        old = onlooker.observe(path, learning_rate=0.1, optimiser=rule)
    assert (old.gradients == onlooker.observe(path, learning_rate=0.1, optimizer=rule).gradients).all()
    with pytest.warns(match="optimizer"), pytest.raises(TypeError, match="both optimizer and optimiser"):
        onlooker.observe(path, learning_rate=0.1, optimizer=rule, optimiser=rule)


def test_importing_the_package_loads_nothing_heavy():
    loaded = loaded_after("import onlooker, onlooker.policies, onlooker.memory")
    assert not {"jax", "numpy", "scipy"} & set(loaded)


def test_help_needs_no_jax():
    code = "import sys; sys.argv = ['onlooker', '--help']\nfrom onlooker.cli import main\n"
    loaded = set(loaded_after(code + "try:\n    main()\nexcept SystemExit:\n    pass"))
    assert "typer" in loaded
    assert not {"jax", "scipy", "matplotlib"} & loaded


def test_recording_with_torch_needs_only_numpy_and_pyarrow(tmp_path):
    wanted = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.match(r"[a-z-]+", one)[0].replace("-", "_") for one in wanted}
    assert {"numpy", "pyarrow", "jax", "scipy"} <= names
    code = f"""
import sys, torch
sys.modules.update(dict.fromkeys({sorted(names - {"numpy", "pyarrow"})}))
import onlooker
weights = torch.nn.Parameter(torch.zeros(3))
optimizer = torch.optim.SGD([weights], lr=0.1)
with onlooker.record(optimizer, {str(tmp_path / "runs")!r}, agent=0):
    for _ in range(5):
        optimizer.zero_grad()
        (weights - 1).square().sum().backward()
        optimizer.step()
"""
    loaded = loaded_after(code)
    assert "onlooker.data.record.torch" in loaded
    assert "onlooker.engine" not in loaded
    assert onlooker.read_log(tmp_path / "runs").points.shape == (5, 3)


def test_observing_loads_what_it_needs_and_no_more():
    code = """
import numpy, onlooker
points = numpy.random.default_rng(0).standard_normal((1100, 1))
live = onlooker.Observer(dim=1)
live.learn_many(points, -points)
assert numpy.isfinite(live.reward([[0.0]])).all()
onlooker.reconstruct, onlooker.run, onlooker.load
"""
    heavy = {"arviz_base", "arviz_stats", "matplotlib", "numpyro", "optax", "scipy.interpolate", "scipy.optimize"}
    assert not (heavy | {"scipy.stats", "xarray", "zarr", "onlooker.simulation"}) & set(loaded_after(code))


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.base_class", None)
    monkeypatch.delitem(sys.modules, "onlooker.data.record.sb3", raising=False)
    with pytest.raises(ImportError, match=r"needs stable_baselines3.*: pip install 'onlooker\[rl\]'"):
        _ = onlooker.callbacks.SB3Callback
