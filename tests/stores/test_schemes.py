"""Stores are opened and looked after by their URL, also those of other packages."""

from pathlib import Path

import pytest

from tests.conformance.databases import ServicesInMemory
from tests.stores.shelf import ShelfScheme
from toolwright import Runtime, StoreError, ToolCall, tool
from toolwright.effects.memory_rows import MemoryDatabase
from toolwright.errors import SecretsError
from toolwright.session.secrets.master_keys import GivenKeys
from toolwright.stores import (
    SqliteStore,
    batches,
    calls,
    check,
    inspect_store,
    open_store,
    prune,
    register_scheme,
    stats,
)
from toolwright.stores import opening as registry
from toolwright.stores.sqlite.services import services_in_memory


@pytest.fixture
def shelves(monkeypatch: pytest.MonkeyPatch) -> ShelfScheme:
    monkeypatch.setattr(registry, "schemes", dict(registry.schemes))
    scheme = ShelfScheme()
    register_scheme("shelf", scheme)
    return scheme


@pytest.mark.promise("EFF-17")
async def test_a_runtime_keeps_its_calls_in_the_store_of_a_registered_scheme(shelves: ShelfScheme):
    @tool
    async def pay(sum: int) -> int:
        return sum

    for _ in range(2):
        async with Runtime.open("shelf://one", tools=[pay], sync="normal") as runtime:
            call = ToolCall(id="c1", name="pay", arguments={"sum": 3})
            (outcome,) = await runtime.session("s1").run_batch([call], scope="m1")
    assert (outcome.value, outcome.replayed) == (3, True)
    assert [options.sync for options in shelves.opened] == ["normal", "normal"]
    (batch,) = await batches("shelf://one")
    (found,) = await calls("shelf://one", batch=batch.batch)
    assert (found.tool, found.outcome.value) == ("pay", 3)
    assert (await stats("shelf://one")).calls == {"success": 1}
    assert await check("shelf://one") == []
    assert (await prune("shelf://one", float("inf"))).calls == 1
    assert await batches("shelf://one") == []


@pytest.mark.usefixtures("shelves")
async def test_a_store_that_is_not_there_is_not_made_by_looking():
    assert await inspect_store("shelf://none").exists() is False
    with pytest.raises(StoreError, match="There is no shelf"):
        await stats("shelf://none")


async def test_a_path_and_a_sqlite_url_name_the_same_file(tmp_path: Path):
    for location in (tmp_path / "a.db", str(tmp_path / "a.db"), f"sqlite:///{tmp_path / 'a.db'}"):
        store = await open_store(location, "normal")
        assert isinstance(store, SqliteStore)
        await store.close()
        assert (await stats(location)).sessions == 0
        assert await inspect_store(location).exists()
    assert [file.name for file in tmp_path.iterdir()] == ["a.db"]


@pytest.mark.promise("EFF-17")
@pytest.mark.parametrize("open", [open_store, inspect_store])
async def test_a_scheme_that_is_not_known_is_refused_with_the_remedy(open):
    with pytest.raises(StoreError) as refused:
        await open("redis://ann:hunter2@cache/0")
    said = str(refused.value)
    assert "has the scheme 'redis', which is not known (known: " in said
    assert said.endswith("use a path, or sqlite:///path, or install the package that offers it")
    assert "hunter2" not in said


@pytest.mark.parametrize("location", ["", "a\0b", "\ud800.db", ":memory:", 3, None])
async def test_what_names_no_store_is_refused(location):
    with pytest.raises(StoreError, match="use the path of a file"):
        await open_store(location)


@pytest.mark.parametrize("open", [open_store, inspect_store])
@pytest.mark.parametrize(
    "location",
    [
        "postgresql:/u:SEKRIT@127.0.0.1:1/x",
        "postgresql:u:SEKRIT@h",
        " postgresql://u:SEKRIT@127.0.0.1:1/x",
        "host=127.0.0.1 port=1 password=SEKRIT",
        "sslmode=require password=SEKRIT",
        "postgresql://127.0.0.1:1/x?passwrd=SEKRIT",
    ],
)
async def test_an_address_with_a_slip_makes_no_file_and_shows_no_password(open, location, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def look() -> None:
        found = open(location)
        await (found if open is open_store else found.stats())

    with pytest.raises(StoreError, match=r"postgresql://|not usable") as refused:
        await look()

    assert "SEKRIT" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


async def test_a_file_may_have_the_name_of_an_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    await (await open_store("./host=1.db")).close()

    assert (tmp_path / "host=1.db").exists()


@pytest.mark.parametrize("name", ["", "a b", "7up", None])
def test_a_name_that_is_no_scheme_is_refused(shelves: ShelfScheme, name):
    with pytest.raises(StoreError, match="is not usable; use letters, digits"):
        register_scheme(name, shelves)


def test_a_scheme_that_opens_nothing_is_refused():
    with pytest.raises(StoreError, match="give it the methods open and inspect"):
        register_scheme("shelf", object())  # type: ignore[arg-type]


ENTRY = """
from tests.conformance.databases import ServicesInMemory
from tests.stores.shelf import ShelfScheme
made = []
class Scheme(ShelfScheme):
    def __init__(self):
        super().__init__()
        made.append(self)
def broken(): ...
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that offers two schemes."""
    monkeypatch.setattr(registry, "schemes", dict(registry.schemes))
    (tmp_path / "shelf_package.py").write_text(ENTRY)
    metadata = tmp_path / "shelf_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[toolwright.stores]\nrack = shelf_package:Scheme\nmoth = shelf_package:nothing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("package")
async def test_a_package_offers_its_scheme_by_an_entry_point():
    store = await open_store("rack://one")
    await store.close()
    assert await inspect_store("rack://one").exists()
    import shelf_package  # type: ignore[import-not-found]

    assert len(shelf_package.made) == 1


@pytest.mark.usefixtures("package")
async def test_an_entry_point_that_cannot_be_loaded_is_named():
    with pytest.raises(StoreError, match=r"The scheme 'moth' of 'shelf_package:nothing' cannot be loaded"):
        await open_store("moth://one")
    with pytest.raises(StoreError, match=r"known: moth, postgresql, rack, sqlite"):
        await open_store("ant://one")


@pytest.mark.promise("SES-03", "EFF-17")
async def test_a_store_that_is_not_a_file_needs_a_master_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TOOLWRIGHT_MASTER_KEY", raising=False)
    services = services_in_memory()
    try:
        async with Runtime.open(ServicesInMemory(MemoryDatabase(), services)) as runtime:
            with pytest.raises(SecretsError, match=r"set TOOLWRIGHT_MASTER_KEY, or open the runtime with master_key="):
                await runtime.session("s1").secrets.set("token", "correct horse battery")
        given = GivenKeys(b"k" * 32)
        async with Runtime.open(ServicesInMemory(MemoryDatabase(), services), master_key=given) as runtime:
            await runtime.session("s1").secrets.set("token", "correct horse battery")
            assert await runtime.session("s1").secrets.get("token") == "correct horse battery"
    finally:
        await services.close()
