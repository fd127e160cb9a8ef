"""Books to test with: an SQLite file, and a database of a real PostgreSQL server."""

import pytest

from tests.book.postgres import USER, server


@pytest.fixture(scope="session")
def postgres_socket():
    """Socket folder of a server that lives as long as the tests."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    started = server()
    try:
        folder = started.__enter__()
    except RuntimeError as error:
        pytest.skip(f"PostgreSQL cannot be started here: {error}")
    try:
        yield folder
    finally:
        started.__exit__(None, None, None)


@pytest.fixture
def postgres(postgres_socket):
    """Address of the server's database, emptied."""
    import psycopg

    admin = f"host={postgres_socket} user={USER} dbname=postgres"
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return f"postgresql://{USER}@/postgres?host={postgres_socket}"


@pytest.fixture(params=["sqlite", "postgres"])
def address(request, tmp_path):
    """Address of a book that does not exist yet, of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "book.sqlite")
    return str(request.getfixturevalue("postgres"))
